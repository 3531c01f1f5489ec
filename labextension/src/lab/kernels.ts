/**
 * Resuming and rerunning need a kernel that has the definitions: that of the notebook. When the notebook is closed it is opened and
 * its cells tagged `agent-setup` are run, after the person was asked: they are code.
 */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { NotebookActions, type INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';

import { ApiError } from '../api-errors.js';
import type { Kernels, Tell, Where } from '../desk.js';
import { isFields } from '../guards.js';
import { line } from '../text.js';
import type { ResumeDoor } from '../view/buttons.js';
import { openRecorded } from './notebooks.js';
import { SETUP_TAG, isSameNotebook, isUndefined, rerunCode, resumeCode, setupOf, setupText } from './resume.js';

export class NotebookKernels implements Kernels {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly tracker: INotebookTracker | null
  ) {}

  door(where: Where): ResumeDoor {
    const panel = this.panelOf(where);
    if (panel === null) {
      const name = where.notebook === null ? '' : nameOf(where.notebook);
      return this.tracker === null || name === ''
        ? { why: 'open its notebook first: a task is continued by a kernel that has its definitions', hint: '' }
        : { why: '', hint: `opens ${name}, starts its kernel and runs its set-up cells, after asking` };
    }
    const status = panel.sessionContext.session?.kernel?.status;
    if (status === undefined || status === 'dead') {
      return { why: 'start the kernel of its notebook first', hint: '' };
    }
    const when = status === 'busy' ? ' after the cell that runs now' : '';
    return { why: '', hint: `continue in the kernel of this notebook${when}; what is done is not done again` };
  }

  resume(where: Where, tell: Tell): Promise<void> {
    return this.run(where, resumeCode(where.sessionId), tell);
  }

  rerun(where: Where, tell: Tell): Promise<void> {
    return this.run(where, rerunCode(where.sessionId), tell);
  }

  private async run(where: Where, code: string, tell: Tell): Promise<void> {
    const known = this.panelOf(where);
    const panel = known ?? (await this.opened(where, tell));
    const kernel = await kernelOf(panel);
    try {
      tell('asking the kernel to go on…');
      await executed(kernel, code);
    } catch (error) {
      const cells = setupOf(contentOf(panel));
      if (!isUndefined(error) || cells.length === 0 || !(known === null || (await mayRun(panel, cells)))) {
        throw error;
      }
      await runSetup(panel, tell);
      tell('asking the kernel to go on…');
      await executed(await kernelOf(panel), code);
    }
  }

  /** The notebook, opened after the person has agreed. */
  private async opened(where: Where, tell: Tell): Promise<NotebookPanel> {
    const { notebook } = where;
    if (notebook === null || this.tracker === null) {
      throw new Error('it is not known which notebook defines it');
    }
    const answer = await showDialog({
      title: `Open ${line(nameOf(notebook), 60)} and go on there?`,
      body: `Its kernel is started, and where it lacks the definitions its cells tagged ${SETUP_TAG} are run. Nothing else of it is run.`,
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Open and Go On' })]
    });
    if (!answer.button.accept) {
      throw new ApiError('refused', 'it was left as it is');
    }
    tell(`opening ${nameOf(notebook)} and starting its kernel…`);
    const panel = await openRecorded(this.app, this.tracker, notebook);
    if (panel === null) {
      throw new ApiError('refused', `this server does not have ${notebook}`, 'open it where it is, and resume the task there');
    }
    return panel;
  }

  private panelOf(where: Where): NotebookPanel | null {
    if (this.tracker === null) {
      return null;
    }
    const { near, notebook } = where;
    const around = near === null ? undefined : this.tracker.find(panel => panel.node.contains(near));
    const named = notebook === null ? undefined : this.tracker.find(panel => isSameNotebook(panel.context.path, notebook));
    return named ?? around ?? null;
  }
}

const nameOf = (path: string): string => path.split(/[\\/]/).pop() ?? path;

const contentOf = (panel: NotebookPanel): unknown => panel.content.model?.toJSON();

async function kernelOf(panel: NotebookPanel): Promise<Kernel.IKernelConnection> {
  await panel.context.ready;
  await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session?.kernel;
  if (!kernel) {
    throw new Error('there is no kernel to run it');
  }
  await kernel.info;
  return kernel;
}

async function mayRun(panel: NotebookPanel, cells: readonly string[]): Promise<boolean> {
  const answer = await showDialog({
    title: 'Run its set-up cells?',
    body: `The kernel of ${line(nameOf(panel.context.path), 60)} lacks the definitions. ${setupText(cells)}`,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Run Them and Go On' })]
  });
  return answer.button.accept;
}

/** Run the tagged cells as the person would, so that their output stands where it belongs. */
async function runSetup(panel: NotebookPanel, tell: Tell): Promise<void> {
  const cells = panel.content.widgets.filter(cell => {
    const tags: unknown = cell.model.getMetadata('tags');
    return cell.model.type === 'code' && Array.isArray(tags) && tags.includes(SETUP_TAG);
  });
  for (const [at, cell] of cells.entries()) {
    tell(`running set-up cell ${at + 1} of ${cells.length}…`);
    if (!(await NotebookActions.runCells(panel.content, [cell], panel.sessionContext))) {
      throw new ApiError('refused', `set-up cell ${at + 1} of ${nameOf(panel.context.path)} failed`, 'its output says why');
    }
  }
}

async function executed(kernel: Kernel.IKernelConnection, code: string): Promise<void> {
  const future = kernel.requestExecute({ code, silent: false, store_history: false, allow_stdin: false, stop_on_error: true });
  const said = errorOf(await future.done);
  if (said !== null) {
    throw said;
  }
}

/** What the kernel answered, when it was not "ok". Our errors put two spaces before their hint. */
function errorOf(reply: KernelMessage.IExecuteReplyMsg): ApiError | null {
  const content: unknown = reply.content;
  if (!isFields(content) || content['status'] === 'ok') {
    return null;
  }
  const value = typeof content['evalue'] === 'string' ? content['evalue'] : '';
  const [message = '', ...hint] = value.split('  ');
  return new ApiError('refused', message || 'the kernel could not continue it', hint.join(' '));
}
