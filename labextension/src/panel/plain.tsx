/** What the panel says when it has no list: what is wrong, or how to begin. */
import type { JSX } from 'preact';

import * as text from '../text.js';
import { Press } from '../view/press.js';
import type { RowStore } from './rows.js';

export function Trouble({ store }: { store: RowStore }): JSX.Element {
  return (
    <div class="ipa-trouble" role="alert">
      <p>{text.line(store.problem, 300)}</p>
      {store.hint === '' ? null : <p class="ipa-hint">{text.line(store.hint, 300)}</p>}
      <Press name="retry" label="Try again" onPress={() => void store.load()} />
    </div>
  );
}

/** What to do when there is nothing yet. */
export function Teach(): JSX.Element {
  return (
    <div class="ipa-empty">
      <p>
        <b>No sessions yet.</b> A task that you start in a notebook appears here and stays: through kernel restarts, crashes and closed
        browsers.
      </p>
      <pre class="ipa-saved-text">{EXAMPLE}</pre>
      <p>Pause, resume, cancel and answer it from its card, from here, or in a terminal.</p>
    </div>
  );
}

const EXAMPLE = `%load_ext ipyagent
from ipyagent import workflow

@workflow
async def count(ctx):
    for i in range(20):
        await ctx.run(
            print, i, key=i)

%agent run count`;
