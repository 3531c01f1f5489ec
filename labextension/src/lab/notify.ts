/** Notices in JupyterLab's notification centre, and as notifications of the browser while nobody looks at the page. */
import { Notification } from '@jupyterlab/apputils';

import type { Desk } from '../desk.js';
import { claimed, isWanted, lookOf, type Wish } from '../notices.js';
import { line } from '../text.js';
import type { ListMessage, Notice } from '../wire.js';

const CLOCKS_DIFFER_MS = 60_000;
const HELD_MS = 15_000;

export interface Wishes {
  /** What is told at all. */
  notices: Wish;
  /** Whether the browser tells it too while the page is hidden. */
  browser: boolean;
}

export class Notifier {
  /** The notifications that stay until the session has its answer. */
  private readonly standing = new Map<string, string>();
  private readonly since = Date.now() - CLOCKS_DIFFER_MS;

  constructor(
    private readonly desk: Desk,
    private readonly wishes: () => Wishes
  ) {
    desk.feed.onNotices(notices => void this.take(notices));
    desk.feed.watchList(message => this.settle(message));
  }

  private async take(notices: readonly Notice[]): Promise<void> {
    for (const notice of claimed(window.localStorage, notices, this.since)) {
      if (isWanted(notice, this.wishes().notices) && (await isMine(notice.id))) {
        this.tell(notice);
      }
    }
  }

  private tell(notice: Notice): void {
    const { type, stays } = lookOf(notice);
    const open = (): void => this.desk.open(notice.session_id);
    const id = Notification.emit(line(`${notice.title}: ${notice.text}`, 140), type, {
      autoClose: stays ? false : 8000,
      actions: [{ label: 'Open', callback: open }]
    });
    if (stays) {
      this.dismiss(notice.session_id);
      this.standing.set(notice.session_id, id);
    }
    if (document.hidden && this.wishes().browser && 'Notification' in window && window.Notification.permission === 'granted') {
      const shown = new window.Notification(line(notice.title, 120), { body: line(notice.text, 240), tag: notice.id });
      shown.onclick = () => {
        window.focus();
        open();
        shown.close();
      };
    }
  }

  /** What needs nobody any more is not asked for any more. */
  private settle(message: ListMessage): void {
    for (const row of message.changed) {
      if (row.needs_you === 0) {
        this.dismiss(row.session_id);
      }
    }
    message.removed.forEach(id => this.dismiss(id));
  }

  private dismiss(sessionId: string): void {
    const id = this.standing.get(sessionId);
    if (id !== undefined) {
      this.standing.delete(sessionId);
      Notification.dismiss(id);
    }
  }
}

/**
 * Whether this tab is the one that tells it. All tabs hear of it in the same moment, and what one of them has written into their
 * storage reaches the others a little later: until then a lock that the first one holds keeps them quiet.
 */
function isMine(id: string): Promise<boolean> {
  const locks = (navigator as { locks?: LockManager }).locks; // only where the page came over a safe connection
  if (locks === undefined) {
    return Promise.resolve(true);
  }
  return new Promise(resolve => {
    void locks.request(`ipyagent:told:${id}`, { ifAvailable: true }, async lock => {
      resolve(lock !== null);
      if (lock !== null) {
        await new Promise(over => setTimeout(over, HELD_MS));
      }
    });
  });
}

/** Ask the browser whether it may notify; it asks the person. Returns whether it may. */
export async function mayNotify(): Promise<boolean> {
  return 'Notification' in window && (await window.Notification.requestPermission()) === 'granted';
}
