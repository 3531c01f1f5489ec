/** What a resume in a kernel consists of, and which notebook it belongs to. Pure. */

import { SESSION_ID, isFields } from '../guards.js';
import { line } from '../text.js';

/** What is run. `--bg`: the kernel stays free for the person, and the card shows the rest. */
export function resumeCode(sessionId: string): string {
  return `%load_ext ipyagent\n%agent resume ${checked(sessionId)} --bg`;
}

/** The same for doing it again; the person has been asked. */
export function rerunCode(sessionId: string): string {
  return `%load_ext ipyagent\n%agent rerun ${checked(sessionId)} --yes --bg`;
}

function checked(sessionId: string): string {
  if (!SESSION_ID.test(sessionId)) {
    throw new Error('that is not the id of a session');
  }
  return sessionId;
}

/** The tag of the cells that define what a task needs. */
export const SETUP_TAG = 'agent-setup';

/** The sources of a notebook's tagged code cells, in order. */
export function setupOf(notebook: unknown): string[] {
  const cells: unknown[] = isFields(notebook) && Array.isArray(notebook['cells']) ? notebook['cells'] : [];
  return cells.filter(isFields).flatMap(cell => {
    const { cell_type, metadata, source } = cell;
    const tags: unknown = isFields(metadata) ? metadata['tags'] : undefined;
    const tagged = cell_type === 'code' && Array.isArray(tags) && tags.includes(SETUP_TAG);
    return tagged ? [Array.isArray(source) ? source.join('') : String(source ?? '')] : [];
  });
}

/** "Its 2 cells tagged agent-setup are run; they begin with: ...". */
export function setupText(cells: readonly string[]): string {
  const begins = cells.map(source => line(source.trim().split('\n', 1)[0] ?? '', 60)).join(' | ');
  return `${cells.length === 1 ? `Its cell tagged ${SETUP_TAG} is` : `Its ${cells.length} cells tagged ${SETUP_TAG} are`} run, which ${cells.length === 1 ? 'begins' : 'begin'} with: ${begins}`;
}

/** Whether a kernel refused because the workflow is not defined in it. */
export function isUndefined(error: unknown): boolean {
  return error instanceof Error && error.message.includes('is not defined here');
}

/** Whether `path`, as the page knows it, is the notebook that a kernel recorded as `recorded`, a path of its own file system. */
export function isSameNotebook(path: string, recorded: string): boolean {
  const [mine, theirs] = [path, recorded].map(each => each.replace(/\\/g, '/').replace(/^[A-Za-z]+:(?=[^/])/, ''));
  return mine !== undefined && mine !== '' && (theirs === mine || (theirs ?? '').endsWith(`/${mine}`));
}
