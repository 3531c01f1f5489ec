/**
 * One WebSocket a page, shared by all cards, the panel and the status bar.
 *
 * It is open while somebody watches. When it breaks it is opened again after a growing pause, and the server is told again what is
 * watched; the first answer after that is the newest truth, so nothing has to be caught up. Updates are handed on at most ten times
 * a second a session.
 */
import { Coalescer, delay, type Delay } from './coalesce.js';
import { asProblem, asShown, isFields } from './guards.js';
import { asList, merged } from './lists.js';
import { asNotices } from './notices.js';
import type { ListMessage, Notice, Problem, Shown, Wanted } from './wire.js';

/** What is used of a WebSocket. */
export interface Socket {
  send(text: string): void;
  close(): void;
  onopen: ((event: Event) => unknown) | null;
  onclose: ((event: CloseEvent) => unknown) | null;
  onmessage: ((event: MessageEvent) => unknown) | null;
}

/** `idle`: nobody watches; `waiting`: it broke and is tried again; `missing`: the server has no such route; `differs`: another contract. */
export type Link = 'idle' | 'connecting' | 'open' | 'waiting' | 'missing' | 'differs';

export interface SessionWatcher {
  /** `at` is when it came, in milliseconds since the epoch. */
  shown(shown: Shown, at: number): void;
  problem(problem: Problem): void;
}

export type ListWatcher = (message: ListMessage) => void;

export interface Surroundings {
  connect(): Socket;
  /** Whether the server part is there at all; asked when the socket could not be opened. */
  exists(): Promise<boolean>;
  later?: Delay;
  random?: () => number;
}

/** The server refuses more in one message. */
export const MOST = 64;
const KEPT = 200;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const MISSING_PAUSE_MS = 60_000;
const INTERVAL_MS = 100;
const CONTRACT = 1;

export class LiveFeed {
  private socket: Socket | null = null;
  private state: Link = 'idle';
  private pause = FIRST_PAUSE_MS;
  private retry: (() => void) | null = null;
  private telling = false;
  private told = { sessions: '', list: false };
  private count: ListMessage | null = null;
  private readonly watchers = new Map<string, Set<SessionWatcher>>();
  private readonly listeners = new Set<ListWatcher>();
  private readonly noticed = new Set<(notices: readonly Notice[]) => void>();
  private readonly linkListeners = new Set<(link: Link) => void>();
  private readonly newest = new Map<string, { shown: Shown; at: number }>();
  private readonly cards: Coalescer<string, Shown>;
  private readonly lists: Coalescer<'list', ListMessage>;
  private readonly later: Delay;

  constructor(private readonly around: Surroundings) {
    this.later = around.later ?? delay;
    this.cards = new Coalescer((id, shown) => this.deliver(id, shown), INTERVAL_MS, this.later);
    this.lists = new Coalescer((_, message) => this.deliverList(message), INTERVAL_MS, this.later, merged);
  }

  get link(): Link {
    return this.state;
  }

  /** Tell `told` of each change of the connection; returns what stops that. */
  onLink(told: (link: Link) => void): () => void {
    this.linkListeners.add(told);
    return () => this.linkListeners.delete(told);
  }

  /** Follow a session; the newest picture known comes at once. Returns what stops that. */
  watch(sessionId: string, watcher: SessionWatcher): () => void {
    const all = this.watchers.get(sessionId) ?? new Set();
    this.watchers.delete(sessionId); // the latest one last: when there are too many, the oldest go without
    this.watchers.set(sessionId, all.add(watcher));
    const known = this.newest.get(sessionId);
    if (known !== undefined) {
      watcher.shown(known.shown, known.at);
    }
    this.changed();
    return () => {
      all.delete(watcher);
      if (all.size === 0 && this.watchers.get(sessionId) === all) {
        this.watchers.delete(sessionId);
        this.changed();
      }
    };
  }

  /** Follow the list of sessions: changed rows, removed ids and counts. */
  watchList(listener: ListWatcher): () => void {
    this.listeners.add(listener);
    if (this.count !== null) {
      listener({ ...this.count, changed: [], removed: [] });
    }
    this.changed();
    return () => {
      this.listeners.delete(listener);
      this.changed();
    };
  }

  /** Hear of what a person wants to know while the list is followed; the same notice may come more than once. */
  onNotices(told: (notices: readonly Notice[]) => void): () => void {
    this.noticed.add(told);
    return () => this.noticed.delete(told);
  }

  /** Close for good. */
  dispose(): void {
    this.watchers.clear();
    this.listeners.clear();
    this.rest();
  }

  private get wanted(): boolean {
    return this.watchers.size > 0 || this.listeners.size > 0;
  }

  private changed(): void {
    if (!this.wanted) {
      this.rest();
    } else if (this.socket === null && this.retry === null) {
      this.open();
    } else if (this.state === 'open') {
      this.tellSoon();
    }
  }

  private tellSoon(): void {
    if (!this.telling) {
      this.telling = true;
      queueMicrotask(() => {
        this.telling = false;
        if (this.state === 'open') {
          this.tellWhatChanged();
        }
      });
    }
  }

  private tellWhatChanged(): void {
    const subscribe = [...this.watchers.keys()].slice(-MOST);
    const now = { sessions: subscribe.join(' '), list: this.listeners.size > 0 };
    const wanted: Wanted = {
      ...(now.sessions !== this.told.sessions && { subscribe }),
      ...(now.list !== this.told.list && { list: now.list })
    };
    this.told = now;
    if (Object.keys(wanted).length > 0) {
      this.socket?.send(JSON.stringify(wanted));
    }
  }

  private open(): void {
    this.retry = null;
    this.become('connecting');
    const socket = this.around.connect();
    let opened = false;
    this.socket = socket;
    socket.onopen = () => {
      opened = true;
      this.told = { sessions: '', list: false };
      this.become('open');
      this.tellSoon();
    };
    socket.onmessage = event => this.take(event.data);
    socket.onclose = () => {
      if (this.socket === socket) {
        this.socket = null;
        void this.broken(opened);
      }
    };
  }

  private async broken(wasOpen: boolean): Promise<void> {
    const missing = !wasOpen && !(await this.around.exists().catch(() => true));
    if (!this.wanted || this.socket !== null || this.retry !== null) {
      return;
    }
    if (this.state !== 'differs') {
      this.become(missing ? 'missing' : 'waiting');
    }
    const pause = missing ? MISSING_PAUSE_MS : this.pause * (0.75 + 0.5 * (this.around.random ?? Math.random)());
    this.pause = Math.min(LONGEST_PAUSE_MS, this.pause * 2);
    this.retry = this.later(() => {
      this.retry = null;
      if (this.wanted) {
        this.open();
      }
    }, pause);
  }

  private rest(): void {
    this.retry?.();
    this.retry = null;
    this.cards.clear();
    this.lists.clear();
    this.count = null;
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.become('idle');
  }

  private become(link: Link): void {
    if (link !== this.state) {
      this.state = link;
      this.linkListeners.forEach(told => told(link));
    }
  }

  private take(data: unknown): void {
    if (typeof data !== 'string') {
      return;
    }
    try {
      this.understood(JSON.parse(data));
    } catch (error) {
      console.warn('ipyagent: a message of the live stream was not understood', error);
    }
  }

  private understood(message: unknown): void {
    if (!isFields(message)) {
      return;
    }
    switch (message['type']) {
      case 'hello':
        this.pause = FIRST_PAUSE_MS;
        if (message['api'] !== CONTRACT) {
          this.become('differs');
        }
        break;
      case 'card': {
        const shown = asShown(message['shown']);
        this.keep(shown);
        this.cards.put(shown.session_id, shown);
        break;
      }
      case 'list':
        this.lists.put('list', asList(message));
        break;
      case 'notices': {
        const notices = asNotices(message);
        this.noticed.forEach(told => told(notices));
        break;
      }
      case 'problem':
        this.troubled(message['session_id'], asProblem(message['problem']));
        break;
      default: // of a newer server
    }
  }

  private troubled(sessionId: unknown, problem: Problem): void {
    if (typeof sessionId === 'string') {
      this.watchers.get(sessionId)?.forEach(watcher => watcher.problem(problem));
    } else {
      console.warn(`ipyagent: ${problem.message}`);
    }
  }

  private deliverList(message: ListMessage): void {
    this.count = message;
    this.listeners.forEach(told => told(message));
  }

  /** The last pictures stay, so that a card that is scrolled back into view is there at once. */
  private keep(shown: Shown): void {
    this.newest.delete(shown.session_id);
    this.newest.set(shown.session_id, { shown, at: Date.now() });
    if (this.newest.size > KEPT) {
      this.newest.delete(this.newest.keys().next().value ?? '');
    }
  }

  private deliver(sessionId: string, shown: Shown): void {
    const now = Date.now();
    this.watchers.get(sessionId)?.forEach(watcher => watcher.shown(shown, now));
  }
}
