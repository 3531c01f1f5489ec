/** What a resume in a kernel consists of, and which notebook it belongs to. Pure. */

const ID = /^[A-Za-z0-9]{4,64}$/;

/** What is run. `--bg`: the kernel stays free for the person, and the card shows the rest. */
export function resumeCode(sessionId: string): string {
  return `%load_ext ipyagent\n%agent resume ${checked(sessionId)} --bg`;
}

/** The same for doing it again; the person has been asked. */
export function rerunCode(sessionId: string): string {
  return `%load_ext ipyagent\n%agent rerun ${checked(sessionId)} --yes --bg`;
}

function checked(sessionId: string): string {
  if (!ID.test(sessionId)) {
    throw new Error('that is not the id of a session');
  }
  return sessionId;
}

/** Whether `path`, as the page knows it, is the notebook that a kernel recorded as `recorded`, a path of its own file system. */
export function isSameNotebook(path: string, recorded: string): boolean {
  const [mine, theirs] = [path, recorded].map(each => each.replace(/\\/g, '/').replace(/^[A-Za-z]+:(?=[^/])/, ''));
  return mine !== undefined && mine !== '' && (theirs === mine || (theirs ?? '').endsWith(`/${mine}`));
}
