/** The view of a task as a widget (anywidget): the card of the lab extension, carried by the comm. */
import { render, type JSX } from 'preact';
import { useState } from 'preact/hooks';

import { Api } from '../api.js';
import { Desk } from '../desk.js';
import { taskRefOf, type TaskRef } from '../guards.js';
import { LiveFeed } from '../live.js';
import { LiveCard, Saved } from '../view/livecard.js';
import { Press } from '../view/press.js';
import { KernelDraw } from './draw.js';
import { OwnKernel } from './kernels.js';
import { Line, type Model } from './wire.js';

function draw({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const line = new Line(model, Math.random().toString(36).slice(2, 10));
  const api = new Api(line.carrier);
  const feed = new LiveFeed({ connect: () => line.connect(), exists: () => Promise.resolve(true) });
  const task = taskRefOf({ session_id: model.get('session_id'), task_id: model.get('task_id') });
  el.classList.add('ipa-widget');
  // elsewhere than in Jupyter's own front ends nobody defines the colours of a theme
  el.classList.toggle('ipa-alone', getComputedStyle(el.ownerDocument.body).getPropertyValue('--jp-layout-color1') === '');
  render(task === null ? <Saved text="" why="this widget does not name a task" /> : <Sessions api={api} feed={feed} first={task} />, el);
  return () => {
    render(null, el);
    feed.dispose();
    line.dispose();
  };
}

/** The widget's task; a fork that is opened from it takes its place until the person goes back. */
function Sessions({ api, feed, first }: { api: Api; feed: LiveFeed; first: TaskRef }): JSX.Element {
  const [opened, setOpened] = useState<string[]>([]);
  const [desk] = useState(
    () => new Desk(api, feed, new OwnKernel(api), id => setOpened(before => [...before, id]), new KernelDraw(api), 'the kernel')
  );
  const last = opened.at(-1);
  return (
    <>
      {last === undefined ? null : (
        <p class="ipa-back">
          <Press name="back" label="Back" hint="to the session before" onPress={() => setOpened(before => before.slice(0, -1))} />
        </p>
      )}
      <LiveCard
        key={last ?? ''}
        desk={desk}
        task={last === undefined ? first : { session_id: last, task_id: '' }}
        notebook={null}
        saved=""
        open={last !== undefined}
      />
    </>
  );
}

export default { render: draw };
