/** What one page shares: the routes, the live stream, and what this person has asked for and not been answered yet. */
import type { Api } from './api.js';
import { ApiError } from './api-errors.js';
import type { LiveFeed } from './live.js';
import type { Draw } from './talk/pieces.js';
import { deedKey, type Deed, type ResumeDoor } from './view/buttons.js';
import type { Notice } from './view/card.js';
import type { Card, ControlBody } from './wire.js';

/** Where a session's notebook may be open. `near` is an element inside the notebook that shows the card. */
export interface Where {
  sessionId: string;
  notebook: string | null;
  near: Element | null;
}

/** The kernels of this page, as far as a resume needs them. */
export interface Kernels {
  door(where: Where): ResumeDoor;
  /** Let the notebook's kernel continue the session, and tell how far that is. Rejects with what the kernel said. */
  resume(where: Where, tell: Tell): Promise<void>;
  /** Let it do the session's task again, as a new one. Rejects likewise. */
  rerun(where: Where, tell: Tell): Promise<void>;
}

/** Says what is being done now. */
export type Tell = (text: string) => void;

const NOBODY: ReadonlySet<string> = new Set();

export class Desk {
  private readonly under = new Map<string, ReadonlySet<string>>();
  private readonly notices = new Map<string, Notice>();
  private readonly listeners = new Set<(sessionId: string) => void>();

  constructor(
    readonly api: Api,
    readonly feed: LiveFeed,
    readonly kernels: Kernels,
    /** Open a session in the main area. */
    readonly open: (sessionId: string) => void,
    /** What draws Markdown and pictures, null where there is nothing that does. */
    readonly draw: Draw | null = null,
    /** Who answers, as a person is told. */
    readonly who = 'the Jupyter server'
  ) {}

  /** The keys of what was asked of a session and is not answered. */
  doing(sessionId: string): ReadonlySet<string> {
    return this.under.get(sessionId) ?? NOBODY;
  }

  notice(sessionId: string): Notice | null {
    return this.notices.get(sessionId) ?? null;
  }

  /** What was told of a session is over, as when its task has changed its state since. */
  forget(sessionId: string): void {
    if (this.notices.delete(sessionId)) {
      this.listeners.forEach(told => told(sessionId));
    }
  }

  onChange(told: (sessionId: string) => void): () => void {
    this.listeners.add(told);
    return () => this.listeners.delete(told);
  }

  /** Ask for `deed`. The same deed asked again before it is answered does nothing. */
  async act(card: Pick<Card, 'session_id' | 'task_id' | 'state'>, deed: Deed, where: Omit<Where, 'sessionId'>): Promise<void> {
    const id = card.session_id;
    const key = deedKey(deed);
    if (this.doing(id).has(key)) {
      return;
    }
    this.notices.delete(id);
    this.mark(id, key, true);
    try {
      if (deed.kind === 'resume') {
        await this.kernels.resume({ ...where, sessionId: id }, this.progress(id));
        this.forget(id);
      } else {
        const outcome = await this.api.control(id, bodyOf(card, deed));
        if (outcome.outcome === 'pending') {
          this.tell(id, 'it is written down, and done as soon as its process can', '', false);
        }
      }
    } catch (error) {
      const hint = error instanceof ApiError ? error.hint : '';
      this.tell(id, error instanceof Error ? error.message : String(error), hint, true);
    } finally {
      this.mark(id, key, false);
    }
  }

  /** Tells how far something is that takes a while. */
  progress(id: string): Tell {
    return text => {
      this.tell(id, text, '', false);
      this.listeners.forEach(told => told(id));
    };
  }

  private tell(id: string, text: string, hint: string, bad: boolean): void {
    this.notices.set(id, { text, hint, bad });
  }

  private mark(id: string, key: string, on: boolean): void {
    const keys = new Set(this.under.get(id));
    if (on) {
      keys.add(key);
    } else {
      keys.delete(key);
    }
    this.under.set(id, keys);
    this.listeners.forEach(told => told(id));
  }
}

/** What is posted: the task and the state that the person saw, and for an answer the digest of what was read. */
export function bodyOf(card: Pick<Card, 'task_id' | 'state'>, deed: Exclude<Deed, { kind: 'resume' }>): ControlBody {
  const expects = [card.state];
  if (deed.kind === 'answer') {
    const { approval_id, answer, digest, choice, reason, always } = deed;
    const terms = { ...(reason && { reason }), ...(deed.arguments && { arguments: deed.arguments }), ...(always && { always }) };
    // the question may be answered in any state that waits; what binds the answer is the digest
    return { action: 'answer', task_id: card.task_id, args: { approval_id, answer, digest, ...(choice !== null && { choice }), ...terms } };
  }
  return { action: deed.kind === 'stop' ? 'pause' : deed.kind, task_id: card.task_id, expects, args: {} };
}
