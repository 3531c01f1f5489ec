/** The list of sessions as this page knows it: pages from the server, then changes from the live stream. */
import type { Api } from '../api.js';
import { ApiError, type Trouble } from '../api-errors.js';
import type { LiveFeed } from '../live.js';
import type { Counts, ListMessage, Row } from '../wire.js';

const FIRST_PAGE = 100;
const PAGE = 500;

export class RowStore {
  readonly rows = new Map<string, Row>();
  counts: Counts | null = null;
  loading = false;
  trouble: Trouble | null = null;
  problem = '';
  hint = '';
  version = 0;
  private filling = false;
  private readonly listeners = new Set<() => void>();
  private stop: (() => void) | null = null;
  private run = 0;

  constructor(
    private readonly api: Pick<Api, 'sessions'>,
    private readonly feed: Pick<LiveFeed, 'watchList' | 'onLink'>
  ) {}

  onChange(told: () => void): () => void {
    this.listeners.add(told);
    return () => this.listeners.delete(told);
  }

  /** Follow the list until `close`. */
  open(): void {
    if (this.stop !== null) {
      return;
    }
    const unlisten = this.feed.watchList(message => this.take(message));
    let was = '';
    const unlink = this.feed.onLink(link => {
      if (link === 'open' && was === 'waiting') {
        void this.load(); // what changed meanwhile was not told
      }
      was = link === 'connecting' ? was : link;
    });
    this.stop = () => {
      unlisten();
      unlink();
    };
    void this.load();
  }

  close(): void {
    this.stop?.();
    this.stop = null;
    this.run++;
  }

  /** Read all pages anew, the newest sessions first; each page is shown as it comes. */
  async load(): Promise<void> {
    const run = ++this.run;
    const seen = new Set<string>();
    this.loading = true;
    this.changed();
    try {
      let cursor: string | undefined;
      do {
        const page = await this.api.sessions({ limit: cursor === undefined ? FIRST_PAGE : PAGE, ...(cursor !== undefined && { cursor }) });
        if (run !== this.run) {
          return;
        }
        for (const row of page.rows) {
          seen.add(row.session_id);
          this.rows.set(row.session_id, row);
        }
        this.counts = page.counts;
        this.filling = page.filling;
        this.trouble = null;
        cursor = page.next ?? undefined;
        this.changed();
      } while (cursor !== undefined);
      for (const id of [...this.rows.keys()].filter(each => !seen.has(each))) {
        this.rows.delete(id);
      }
    } catch (error) {
      if (run === this.run) {
        this.trouble = error instanceof ApiError ? error.trouble : 'failed';
        this.problem = error instanceof Error ? error.message : String(error);
        this.hint = error instanceof ApiError ? error.hint : '';
      }
    } finally {
      if (run === this.run) {
        this.loading = false;
        this.changed();
      }
    }
  }

  private take(message: ListMessage): void {
    for (const row of message.changed) {
      this.rows.set(row.session_id, row);
    }
    for (const id of message.removed) {
      this.rows.delete(id);
    }
    this.counts = message.counts;
    this.trouble = null;
    if (this.filling && !message.filling) {
      void this.load(); // while the server was reading, only counts were told
    }
    this.filling = message.filling;
    this.changed();
  }

  private changed(): void {
    this.version++;
    this.listeners.forEach(told => told());
  }
}
