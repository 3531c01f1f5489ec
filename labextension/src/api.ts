/** The routes of the server part (docs/server-api.md), each as one typed function, whatever carries the request. */
import { errorOf } from './api-errors.js';
import {
  NotUnderstood,
  asAftermath,
  asCard,
  asCompared,
  asEventPage,
  asOutcome,
  asPage,
  asKnown,
  asLoss,
  asStates,
  asStatus,
  isFields,
  type Known
} from './guards.js';
import type { Aftermath, Card, Compared, ControlBody, EventPage, ForkBody, Loss, Outcome, Page, Status } from './wire.js';

/** The version of the contract that this page was written for. */
export const API = 1;

export interface ListQuery {
  limit?: number;
  cursor?: string;
  sort?: string;
  q?: string;
}

/** Carries a request to who answers it: over HTTP to the server, or over the comm of a widget. Rejects with an ApiError when nobody does. */
export type Carrier = (path: string, init: RequestInit) => Promise<Response>;

export class Api {
  constructor(private readonly carry: Carrier) {}

  status(): Promise<Status> {
    return this.get('status', {}, asStatus);
  }

  sessions(query: ListQuery): Promise<Page> {
    return this.get('sessions', { ...query }, asPage);
  }

  /** What is known of a session besides its picture. */
  detail(sessionId: string): Promise<Known> {
    return this.get(session(sessionId), {}, asKnown);
  }

  events(sessionId: string, after: number, limit: number, maxPayload: number): Promise<EventPage> {
    return this.get(`${session(sessionId)}/events`, { after, limit, max_payload: maxPayload }, asEventPage);
  }

  /** The events of a conversation alone. */
  talk(sessionId: string, after: number, limit: number, maxPayload: number): Promise<EventPage> {
    return this.get(`${session(sessionId)}/events`, { after, limit, max_payload: maxPayload, only: 'talk' }, asEventPage);
  }

  /** A large payload, as text. */
  blob(sessionId: string, name: string): Promise<string> {
    return this.request(`${session(sessionId)}/blobs/${encodeURIComponent(name)}`, { method: 'GET' }, String, response => response.text());
  }

  /** A picture, in base64. */
  picture(sessionId: string, name: string): Promise<string> {
    const read = async (response: Response): Promise<string> => {
      const bytes = new Uint8Array(await response.arrayBuffer());
      let text = '';
      for (let at = 0; at < bytes.length; at += 0x8000) {
        text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
      }
      return btoa(text);
    };
    return this.request(`${session(sessionId)}/blobs/${encodeURIComponent(name)}`, { method: 'GET' }, String, read);
  }

  /** What deleting a session would lose. */
  loss(sessionId: string): Promise<Loss> {
    return this.get(`${session(sessionId)}/loss`, {}, asLoss);
  }

  /** Delete a session that has as many events as the person was told. */
  remove(sessionId: string, events: number): Promise<Loss> {
    return this.post(`${session(sessionId)}/delete`, { events }, asLoss);
  }

  /** A session as a file. */
  export(sessionId: string, kind: string): Promise<Blob> {
    const path = `${session(sessionId)}/export?kind=${encodeURIComponent(kind)}`;
    return this.request(path, { method: 'GET' }, body => body as Blob, response => response.blob());
  }

  /** What a fork at event `at` would mean. */
  aftermath(sessionId: string, at: number): Promise<Aftermath> {
    return this.get(`${session(sessionId)}/aftermath`, { at }, asAftermath);
  }

  compare(left: string, right: string): Promise<Compared> {
    return this.get(`${session(left)}/compare`, { with: right }, asCompared);
  }

  /** The card as it was right after event `seq`: rebuilt from the log, nothing is executed. */
  async cardAt(sessionId: string, seq: number): Promise<Card> {
    const { cards } = await this.get(`${session(sessionId)}/state`, { at: seq }, asStates);
    return asCard(cards[0]);
  }

  control(sessionId: string, body: ControlBody): Promise<Outcome> {
    return this.post(`${session(sessionId)}/control`, body, asOutcome);
  }

  fork(sessionId: string, body: ForkBody): Promise<string> {
    return this.post(`${session(sessionId)}/fork`, body, answer => {
      const id = isFields(answer) ? answer['session_id'] : undefined;
      if (typeof id !== 'string') {
        throw new NotUnderstood('fork.session_id');
      }
      return id;
    });
  }

  /** Let the kernel that answers continue a session, or do its task again. A server has no kernel of its own: this is for widgets. */
  goOn(sessionId: string, how: 'resume' | 'rerun'): Promise<void> {
    return this.post(`${session(sessionId)}/${how}`, {}, () => undefined);
  }

  /** Markdown as HTML that can do nothing, made by the kernel that answers: for widgets too. */
  markdown(text: string): Promise<string> {
    return this.request('markdown', { method: 'POST', body: text }, String, response => response.text());
  }

  private get<T>(path: string, query: Record<string, string | number | undefined>, read: (body: unknown) => T): Promise<T> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return this.request(search ? `${path}?${search}` : path, { method: 'GET' }, read);
  }

  private post<T>(path: string, body: unknown, read: (body: unknown) => T): Promise<T> {
    return this.request(path, { method: 'POST', body: JSON.stringify(body) }, read);
  }

  private async request<T>(
    path: string,
    init: RequestInit,
    read: (body: unknown) => T,
    bodyOf: (response: Response) => Promise<unknown> = response => response.json()
  ): Promise<T> {
    const response = await this.carry(path, init);
    let body: unknown;
    try {
      body = await (response.ok ? bodyOf(response) : response.json());
    } catch {
      body = undefined;
    }
    if (response.ok) {
      return read(body);
    }
    throw errorOf(response.status, body);
  }
}

const session = (id: string): string => `sessions/${encodeURIComponent(id)}`;
