/** "2 running, 1 needs you" at the bottom of the window; nothing when nothing goes on. */
import { Widget } from '@lumino/widgets';
import { render } from 'preact';

import type { LiveFeed } from '../live.js';
import { summaryOf } from '../panel/groups.js';
import { Glyph } from '../view/states.js';
import type { Counts } from '../wire.js';

export class StatusItem extends Widget {
  private text = '';
  private readonly unfollow: () => void;

  constructor(
    feed: LiveFeed,
    private readonly open: () => void,
    private readonly changed: () => void
  ) {
    super();
    this.addClass('ipa-status');
    this.addClass('jp-mod-highlighted');
    this.unfollow = feed.watchList(message => this.tell(message.counts));
  }

  get isActive(): boolean {
    return this.text !== '';
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.unfollow();
      render(null, this.node);
    }
    super.dispose();
  }

  private tell(counts: Counts): void {
    const text = summaryOf(counts);
    if (text === this.text) {
      return;
    }
    this.text = text;
    const needs = counts.needs_you > 0;
    render(
      text === '' ? null : (
        <button type="button" class="ipa-status-button" title="agent sessions" onClick={this.open}>
          <Glyph state="running" needsYou={needs} />
          <span aria-live="polite">{text}</span>
        </button>
      ),
      this.node
    );
    this.changed();
  }
}
