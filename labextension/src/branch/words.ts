/** What is said before something is forked or run again, and how to do it where this page cannot. Pure. */
import { line, money, size } from '../text.js';
import type { Aftermath, Loss } from '../wire.js';

export type Way = 'fork' | 'rerun';

/** Where a workflow is defined: what the server cannot run by itself, a kernel or a terminal can. */
export interface Home {
  /** A module, or `__main__` for the kernel of the notebook; an agent's own module needs the notebook's tools. */
  definition: string;
  notebook: string | null;
  cell: string | null;
}

export const DIFFERS = 'It costs again, and results may differ: a rerun is not a replay.';

/** Where the fork begins; null when it cannot. An event inside an open activity gives way to the nearest one before it. */
export function beginsAt(after: Aftermath): number | null {
  return after.open.length === 0 ? after.at : after.nearest;
}

/** Sentences to read before anything is done. */
export function told(way: Way, after: Aftermath): string[] {
  const at = beginsAt(after);
  if (at === null) {
    return [`Event ${after.at} lies inside ${names(after.open)}, and nothing before it can be forked.`];
  }
  const out = [
    way === 'fork'
      ? `A new session shares events 1 to ${at}; this one stays as it is.`
      : `A new session shares events 1 to ${at} and does everything after them again, for real. ${DIFFERS}`
  ];
  if (at !== after.at) {
    out.push(`Event ${after.at} lies inside ${names(after.open)}, which had no result yet: it begins at event ${at}.`);
  }
  if (after.ended) {
    out.push('The task has ended there: the fork can only be given a new one. To let it go on another way, choose an earlier event.');
  }
  return out;
}

/** What stays in the world, as a heading for the list of `effects`. */
export function staysOf(after: Aftermath): string {
  const count = after.effects.length + after.more;
  return count === 0
    ? 'Nothing outside was changed after that.'
    : `Still there from after that, and not undone (${count}):`;
}

function names(open: readonly string[]): string {
  return open.length === 0 ? 'an activity' : open.map(each => line(each.replace(/^\//, ''), 40)).join(', ');
}

/** What a person reads before a session is deleted. */
export function lossText(loss: Loss): string[] {
  const many = (count: number, word: string): string => `${count} ${word}${count === 1 ? '' : 's'}`;
  const out = [
    `${line(loss.title || loss.session_id, 100)} (${line(loss.state, 60)}): ${many(loss.events, 'event')}, ${many(loss.tasks, 'task')}, ${size(loss.bytes)}, the record of ${money(loss.cost_usd)}. This cannot be undone.`
  ];
  if (loss.needs_you > 0) {
    out.push(`${many(loss.needs_you, 'request')} of it wait${loss.needs_you === 1 ? 's' : ''} for an answer.`);
  }
  if (loss.forks.length > 0) {
    out.push(`Forked from it: ${loss.forks.map(each => line(each, 32)).join(', ')}. They get a copy of what they share with it first.`);
  }
  if (loss.workspace !== '') {
    out.push(`Its workspace ${line(loss.workspace, 200)} (${size(loss.workspace_bytes)}) goes with it, with all that is not elsewhere.`);
  }
  return out;
}

/** The command that continues or repeats `sessionId`, and who has to give it. */
export function commandOf(doing: 'resume' | 'rerun', sessionId: string, home: Home): { where: string; command: string } {
  const words = `${doing} ${sessionId}${doing === 'rerun' ? ' --yes' : ''}`;
  if (home.definition !== '' && home.definition !== '__main__' && !home.definition.startsWith('ipyagent_sessions.')) {
    return { where: `in a terminal, where ${line(home.definition, 60)} can be imported`, command: `ipyagent ${words}` };
  }
  const notebook = home.notebook === null ? 'the notebook that defines it' : line(home.notebook.split(/[\\/]/).pop() ?? '', 60);
  const cell = home.cell === null ? 'the cell that defines the workflow' : `the cells up to the one that started it (${line(home.cell, 40)})`;
  return { where: `in ${notebook}, after ${cell}`, command: `%agent ${words}` };
}

/** The direction as it is stored: what a person typed, without the blanks around it; null when it is longer than is taken. */
export function directionOf(typed: string): string | null {
  const text = typed.trim();
  return text.length > LONGEST_DIRECTION ? null : text;
}

/** What the fork is called: the direction's first line; empty lets the server name it. */
export function titleOf(direction: string): string {
  return line(direction.split('\n', 1)[0] ?? '', 60);
}

export const LONGEST_DIRECTION = 2000;
