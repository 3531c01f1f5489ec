/** Resuming needs a kernel that has the definitions: that of the notebook, when it is open in this page. */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { KernelMessage } from '@jupyterlab/services';

import { ApiError } from '../api-errors.js';
import type { Kernels, Where } from '../desk.js';
import { isFields } from '../guards.js';
import type { ResumeDoor } from '../view/buttons.js';
import { isSameNotebook, rerunCode, resumeCode } from './resume.js';

export class NotebookKernels implements Kernels {
  constructor(private readonly tracker: INotebookTracker | null) {}

  door(where: Where): ResumeDoor {
    const panel = this.panelOf(where);
    if (panel === null) {
      const name = where.notebook === null ? 'its notebook' : (where.notebook.split('/').pop() ?? 'its notebook');
      return { why: `open ${name} first: a task is continued by a kernel that has its definitions`, hint: '' };
    }
    const status = panel.sessionContext.session?.kernel?.status;
    if (status === undefined || status === 'dead') {
      return { why: 'start the kernel of its notebook first', hint: '' };
    }
    const when = status === 'busy' ? ' after the cell that runs now' : '';
    return { why: '', hint: `continue in the kernel of this notebook${when}; what is done is not done again` };
  }

  resume(where: Where): Promise<void> {
    return this.run(where, resumeCode(where.sessionId));
  }

  rerun(where: Where): Promise<void> {
    return this.run(where, rerunCode(where.sessionId));
  }

  private async run(where: Where, code: string): Promise<void> {
    const kernel = this.panelOf(where)?.sessionContext.session?.kernel;
    if (!kernel) {
      throw new Error('there is no kernel to run it');
    }
    const future = kernel.requestExecute({
      code,
      silent: false,
      store_history: false,
      allow_stdin: false,
      stop_on_error: true
    });
    const said = errorOf(await future.done);
    if (said !== null) {
      throw said;
    }
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
