/** What the palette, the menus and a row of the panel can do. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog, type ICommandPalette } from '@jupyterlab/apputils';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { Desk } from '../desk.js';
import { line } from '../text.js';
import { ENDED } from '../view/states.js';
import type { Deed } from '../view/buttons.js';

export interface Surface {
  /** Bring the panel to the front. */
  showPanel(): void;
  /** Open a session in the main area. */
  open(sessionId: string): void;
  /** The session that is in front in the main area, null when there is none. */
  current(): string | null;
  openNotebook(recorded: string): void;
}

interface Target {
  sessionId: string;
  taskId: string;
  state: string;
  title: string;
  notebook: string | null;
  needsYou: boolean;
}

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
        surface.open(target.sessionId);
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
    execute: args => {
      const notebook = targetOf(args)?.notebook;
      if (notebook) {
        surface.openNotebook(notebook);
      }
    }
  });
  for (const command of ['ipyagent:show-panel', 'ipyagent:pause', 'ipyagent:resume', 'ipyagent:cancel']) {
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

async function isSure(target: Target): Promise<boolean> {
  const answer = await showDialog({
    title: 'End this task for good?',
    body: `${line(target.title, 120)} is ${target.state}. A cancelled task never goes on; files that it made stay.`,
    buttons: [Dialog.cancelButton({ label: 'Keep It' }), Dialog.warnButton({ label: 'Cancel Task' })]
  });
  return answer.button.accept;
}
