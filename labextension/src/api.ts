/** The routes of the server part (docs/server-api.md), each as one typed function over one fetch. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { ApiError, errorOf } from './api-errors.js';
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
import type { Aftermath, Card, Compared, ControlBody, EventPage, ForkBody, Loss, Outcome, Page, Row, Status } from './wire.js';

/** The version of the contract that this page was written for. */
export const API = 1;

const ROOT = 'ipyagent/api';

export interface ListQuery {
  limit?: number;
  cursor?: string;
  sort?: string;
  q?: string;
}

export class Api {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  status(): Promise<Status> {
    return this.get('status', {}, asStatus);
  }

  sessions(query: ListQuery): Promise<Page> {
    return this.get('sessions', { ...query }, asPage);
  }

  /** A session as the list has it, null when it is not in the list. */
  async row(sessionId: string): Promise<Row | null> {
    const { rows } = await this.sessions({ q: sessionId, limit: 5 });
    return rows.find(row => row.session_id === sessionId) ?? null;
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

  /** The address of the live socket, with the token where cookies do not do. */
  liveUrl(): string {
    const url = URLExt.join(this.settings.wsUrl, ROOT, 'live');
    return this.settings.appendToken && this.settings.token
      ? `${url}?token=${encodeURIComponent(this.settings.token)}`
      : url;
  }

  /** A new socket to the live stream. */
  connect(): WebSocket {
    return new this.settings.WebSocket(this.liveUrl());
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
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(`${URLExt.join(this.settings.baseUrl, ROOT)}/${path}`, init, this.settings);
    } catch {
      throw new ApiError('offline', 'the Jupyter server does not answer', 'it is tried again by itself');
    }
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
