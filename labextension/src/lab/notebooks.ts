/** Notebooks by the path that a kernel recorded, which is one of its own file system. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { isSameNotebook } from './resume.js';

/** Open a notebook, or bring it to the front, at the cell with the id `cell`. Resolves with its panel; null when nobody has it. */
export async function openRecorded(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker | null,
  recorded: string,
  cell: string | null = null
): Promise<NotebookPanel | null> {
  let panel = notebooks?.find(each => isSameNotebook(each.context.path, recorded)) ?? null;
  if (panel === null) {
    const path = await servedPath(app, recorded);
    if (path === null) {
      return null;
    }
    await app.commands.execute('docmanager:open', { path });
    panel = notebooks?.find(each => each.context.path === path) ?? null;
  } else {
    app.shell.activateById(panel.id);
  }
  if (panel !== null) {
    await panel.revealed;
    if (cell !== null) {
      await showCell(panel, cell);
    }
  }
  return panel;
}

/** The longest end of the recorded path that this server has, null when it has none. */
async function servedPath(app: JupyterFrontEnd, recorded: string): Promise<string | null> {
  const parts = recorded.replace(/\\/g, '/').split('/').filter(Boolean);
  for (let from = 0; from < parts.length; from++) {
    const path = parts.slice(from).join('/');
    const found = await app.serviceManager.contents.get(path, { content: false }).then(
      () => true,
      () => false
    );
    if (found) {
      return path;
    }
  }
  return null;
}

async function showCell(panel: NotebookPanel, id: string): Promise<void> {
  const at = panel.content.widgets.findIndex(each => each.model.id === id);
  if (at >= 0) {
    panel.content.activeCellIndex = at;
    await panel.content.scrollToItem(at, 'smart');
  }
}
