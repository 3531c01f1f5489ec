/** What the palette, the menus and a row of the panel can do. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Clipboard, Dialog, InputDialog, Notification, showDialog, type ICommandPalette } from '@jupyterlab/apputils';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { DIFFERS, commandOf } from '../branch/words.js';
import type { Desk } from '../desk.js';
import { line } from '../text.js';
import type { Intent } from '../timeline/timeline.js';
import { ENDED } from '../view/states.js';
import type { Deed } from '../view/buttons.js';
import { deleteSession, exportSession } from './keeping.js';

export interface Surface {
  /** Bring the panel to the front. */
  showPanel(): void;
  /** Open a session in the main area. */
  open(sessionId: string, intent: Intent | null): void;
  /** The session that is in front in the main area, null when there is none. */
  current(): string | null;
  /** Open a notebook by its recorded path, at a cell when its id is known. */
  openNotebook(recorded: string, cell: string | null): void;
}

interface Target {
  sessionId: string;
  taskId: string;
  state: string;
  title: string;
  notebook: string | null;
  needsYou: boolean;
}

/** What can be done without naming a session: to the one that is open in front. */
export const IN_PALETTE = ['show-panel', 'pause', 'resume', 'cancel', 'fork', 'replay', 'rerun', 'rename', 'export', 'delete'].map(name => `ipyagent:${name}`);

const str = (value: unknown): string => (typeof value === 'string' ? value : '');

function targetOf(args: ReadonlyPartialJSONObject): Target | null {
  const sessionId = str(args['session_id']);
  return sessionId === ''
    ? null
    : {
        sessionId,
        taskId: str(args['task_id']),
        state: str(args['state']),
        title: str(args['title']) || sessionId,
        notebook: str(args['notebook']) || null,
        needsYou: Number(args['needs_you'] ?? 0) > 0
      };
}

export function addCommands(app: JupyterFrontEnd, desk: Desk, surface: Surface, palette: ICommandPalette | null): void {
  const { commands } = app;
  commands.addCommand('ipyagent:show-panel', { label: 'Show Agent Sessions', execute: () => surface.showPanel() });
  commands.addCommand('ipyagent:open', {
    label: args => (targetOf(args)?.needsYou ? 'Open to Answer' : 'Open'),
    isVisible: args => targetOf(args) !== null,
    execute: args => {
      const target = targetOf(args);
      if (target !== null) {
        surface.open(target.sessionId, null);
      }
    }
  });
  const intents: readonly { kind: Intent; label: string; caption: string }[] = [
    { kind: 'fork', label: 'Fork…', caption: 'try another direction in a new session' },
    { kind: 'replay', label: 'Replay', caption: 'show what happened again; nothing is executed' }
  ];
  for (const { kind, label, caption } of intents) {
    commands.addCommand(`ipyagent:${kind}`, {
      label,
      caption,
      isEnabled: args => (targetOf(args)?.sessionId ?? surface.current()) !== null && targetOf(args)?.taskId !== '',
      execute: args => {
        const id = targetOf(args)?.sessionId ?? surface.current();
        if (id !== null) {
          surface.open(id, kind);
        }
      }
    });
  }
  commands.addCommand('ipyagent:rerun', {
    label: 'Rerun…',
    caption: 'do it again for real, as a new task',
    isEnabled: args => (targetOf(args)?.sessionId ?? surface.current()) !== null && targetOf(args)?.taskId !== '',
    execute: async args => {
      const target = targetOf(args) ?? (await currentTarget(desk, surface));
      if (target !== null) {
        await rerun(desk, surface, target);
      }
    }
  });
  const others: readonly { name: string; label: string; act: (target: Target) => Promise<void> }[] = [
    { name: 'export', label: 'Export…', act: target => exportSession(desk.api, target.sessionId, target.title) },
    { name: 'delete', label: 'Delete…', act: target => deleteSession(desk.api, target.sessionId) }
  ];
  for (const { name, label, act } of others) {
    commands.addCommand(`ipyagent:${name}`, {
      label,
      isEnabled: args => (targetOf(args)?.sessionId ?? surface.current()) !== null,
      execute: async args => {
        const target = targetOf(args) ?? (await currentTarget(desk, surface));
        if (target !== null) {
          await act(target).catch(error => complain(label.replace('…', ''), error));
        }
      }
    });
  }
  commands.addCommand('ipyagent:rename', {
    label: 'Rename…',
    isEnabled: args => (targetOf(args)?.sessionId ?? surface.current()) !== null,
    execute: async args => {
      const target = targetOf(args) ?? (await currentTarget(desk, surface));
      if (target !== null) {
        await rename(desk, target);
      }
    }
  });
  const deeds: readonly { kind: 'pause' | 'resume' | 'cancel'; label: string; allowed: (target: Target) => boolean }[] = [
    { kind: 'pause', label: 'Pause', allowed: target => target.state === 'running' },
    { kind: 'resume', label: 'Resume', allowed: target => !ENDED.has(target.state) && target.state !== 'running' && mayResume(desk, target) },
    { kind: 'cancel', label: 'Cancel…', allowed: target => !ENDED.has(target.state) && target.taskId !== '' }
  ];
  for (const { kind, label, allowed } of deeds) {
    commands.addCommand(`ipyagent:${kind}`, {
      label,
      caption: args => (kind === 'resume' ? doorOf(desk, targetOf(args)) : ''),
      isEnabled: args => {
        const target = targetOf(args);
        return target === null ? surface.current() !== null : allowed(target);
      },
      execute: async args => {
        const target = targetOf(args) ?? (await currentTarget(desk, surface));
        if (target !== null && (kind !== 'cancel' || (await isSure(target)))) {
          await perform(desk, target, { kind });
        }
      }
    });
  }
  commands.addCommand('ipyagent:open-notebook', {
    label: 'Open Notebook',
    isEnabled: args => targetOf(args)?.notebook != null,
    execute: async args => {
      const target = targetOf(args);
      if (target?.notebook) {
        const known = await desk.api.detail(target.sessionId).catch(() => null);
        surface.openNotebook(target.notebook, known?.cell ?? null);
      }
    }
  });
  for (const command of IN_PALETTE) {
    palette?.addItem({ command, category: 'Agent Sessions' });
  }
}

const mayResume = (desk: Desk, target: Target): boolean => doorOf(desk, target) === '';

function doorOf(desk: Desk, target: Target | null): string {
  return target === null ? '' : desk.kernels.door({ sessionId: target.sessionId, notebook: target.notebook, near: null }).why;
}

async function currentTarget(desk: Desk, surface: Surface): Promise<Target | null> {
  const sessionId = surface.current();
  if (sessionId === null) {
    return null;
  }
  const { shown, notebook } = await desk.api.detail(sessionId);
  const { task_id, state, title, asks } = shown.card;
  return { sessionId, taskId: task_id, state, title, notebook, needsYou: asks.length > 0 };
}

async function perform(desk: Desk, target: Target, deed: Deed): Promise<void> {
  const card = { session_id: target.sessionId, task_id: target.taskId, state: target.state };
  await desk.act(card, deed, { notebook: target.notebook, near: null });
  const notice = desk.notice(target.sessionId);
  if (notice !== null) {
    Notification.emit(line(`${target.title}: ${notice.text}`, 300), notice.bad ? 'warning' : 'info', { autoClose: 6000 });
  }
}

async function rename(desk: Desk, target: Target): Promise<void> {
  const answer = await InputDialog.getText({ title: 'Rename the session', label: 'Its title', text: target.title, okLabel: 'Rename' });
  const title = (answer.value ?? '').trim();
  if (answer.button.accept && title !== '' && title !== target.title) {
    await desk.api.control(target.sessionId, { action: 'rename', args: { title } }).catch(error => complain('Rename', error));
  }
}

/** A rerun needs a kernel that has the definitions; where this page has none, the command that does it is offered. */
async function rerun(desk: Desk, surface: Surface, target: Target): Promise<void> {
  const where = { sessionId: target.sessionId, notebook: target.notebook, near: null };
  const known = await desk.api.detail(target.sessionId);
  const { where: place, command } = commandOf('rerun', target.sessionId, known);
  const door = desk.kernels.door(where);
  const here = door.why === '';
  const answer = await showDialog({
    title: 'Run it again, for real?',
    body: `${line(target.title, 120)} becomes a new task in a new session. ${DIFFERS} ${
      here ? `It runs in the kernel of ${line(target.notebook ?? 'this notebook', 80)}.` : `Give this command ${place}: ${command}`
    }`,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: here ? 'Rerun' : 'Copy the Command' })]
  });
  if (!answer.button.accept) {
    return;
  }
  if (here) {
    await desk.kernels.rerun(where, desk.progress(target.sessionId)).finally(() => desk.forget(target.sessionId)).then(() => surface.showPanel(), error => complain('Rerun', error));
  } else {
    Clipboard.copyToSystem(command);
  }
}

function complain(what: string, error: unknown): void {
  Notification.error(line(`${what}: ${error instanceof Error ? error.message : String(error)}`, 300), { autoClose: 8000 });
}

async function isSure(target: Target): Promise<boolean> {
  const answer = await showDialog({
    title: 'End this task for good?',
    body: `${line(target.title, 120)} is ${target.state}. A cancelled task never goes on; files that it made stay.`,
    buttons: [Dialog.cancelButton({ label: 'Keep It' }), Dialog.warnButton({ label: 'Cancel Task' })]
  });
  return answer.button.accept;
}
