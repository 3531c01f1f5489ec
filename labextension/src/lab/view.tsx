/** Widgets that hold our views: the output of a cell, and a session in the main area. */
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { render, type JSX } from 'preact';

import type { Desk } from '../desk.js';
import { taskRefOf, type TaskRef } from '../guards.js';
import { line } from '../text.js';
import type { Intent } from '../timeline/timeline.js';
import { LiveCard, Saved } from '../view/livecard.js';
import { taskIcon } from './icon.js';

export const MIME = 'application/vnd.ipyagent.task+json';

/** A widget whose content is a view; it is drawn while it is attached, so what it follows is let go of with it. */
export abstract class ViewWidget extends Widget {
  private drawn = false;

  protected abstract view(): JSX.Element;

  protected redraw(): void {
    if (this.drawn) {
      render(this.view(), this.node);
    }
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.drawn = true;
    this.redraw();
  }

  protected override onBeforeDetach(message: Message): void {
    this.drawn = false;
    render(null, this.node);
    super.onBeforeDetach(message);
  }
}

/** The output of a cell. Its custom key names the task; everything that is shown of it comes from the server. */
export class TaskOutput extends ViewWidget implements IRenderMime.IRenderer {
  private task: TaskRef | null = null;
  private saved = '';

  constructor(private readonly desk: Desk) {
    super();
    this.addClass('ipa-output');
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const plain = model.data['text/plain'];
    this.task = taskRefOf(model.data[MIME]);
    this.saved = typeof plain === 'string' ? plain : Array.isArray(plain) ? plain.join('') : '';
    this.redraw();
    return Promise.resolve();
  }

  protected view(): JSX.Element {
    return this.task === null ? (
      <Saved text={this.saved} why="this output does not name a task" />
    ) : (
      <LiveCard key={`${this.task.session_id} ${this.task.task_id}`} desk={this.desk} task={this.task} notebook={null} saved={this.saved} />
    );
  }
}

/** A session in the main area: its card with timeline and log open. */
export class SessionTab extends ViewWidget {
  private notebook: string | null = null;
  private intent: Intent | null = null;
  private wishes = 0;

  constructor(
    private readonly desk: Desk,
    readonly sessionId: string
  ) {
    super();
    this.id = `ipyagent-session-${sessionId}`;
    this.addClass('ipa-tab');
    this.title.icon = taskIcon;
    this.title.label = sessionId;
    this.title.closable = true;
    desk.api.detail(sessionId).then(
      ({ notebook, shown, title }) => {
        this.notebook = notebook;
        this.title.label = line(title || shown.card.title || sessionId, 40);
        this.title.caption = line(`${title || shown.card.title} · ${sessionId} · ${notebook ?? 'no notebook'}`, 300);
        this.redraw();
      },
      () => undefined // the view tells why
    );
  }

  /** Begin what the person wants to do with it. */
  wish(intent: Intent): void {
    this.intent = intent;
    this.wishes++;
    this.redraw();
  }

  protected view(): JSX.Element {
    const task = { session_id: this.sessionId, task_id: '' };
    return <LiveCard key={this.wishes} desk={this.desk} task={task} notebook={this.notebook} saved="" open intent={this.intent} />;
  }
}
