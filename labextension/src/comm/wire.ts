/**
 * Requests and the live stream over the comm of a widget, in place of a server's routes and socket.
 *
 * The kernel side is `ipyagent/task_widget.py`. A request is answered under its number, which names the page too, since all pages
 * that show a widget hear everything that its kernel says.
 */
import type { Carrier } from '../api.js';
import { ApiError } from '../api-errors.js';
import { delay, type Delay } from '../coalesce.js';
import { isFields } from '../guards.js';
import type { Socket } from '../live.js';

/** What is used of a widget's model. */
export interface Model {
  get(name: string): unknown;
  send(content: object): void;
  on(event: 'msg:custom', heard: (content: unknown, buffers: readonly DataView[]) => void): void;
  off(event: 'msg:custom', heard: (content: unknown, buffers: readonly DataView[]) => void): void;
}

const ANSWER_MS = 30_000;
/** The kernel is heard of every five seconds at least. */
const SILENT_MS = 16_000;

export class Line {
  private count = 0;
  private readonly waiting = new Map<string, (response: Response) => void>();
  private readonly live = new Set<(message: unknown) => void>();
  private readonly heard = (content: unknown, buffers: readonly DataView[]): void => this.take(content, buffers);

  constructor(
    private readonly model: Model,
    private readonly page: string,
    private readonly later: Delay = delay
  ) {
    model.on('msg:custom', this.heard);
  }

  /** Carries requests. One that gets no answer is not taken back: the kernel finds it when it has time. */
  readonly carrier: Carrier = (path, init) =>
    new Promise((resolve, reject) => {
      const nr = `${this.page}-${++this.count}`;
      const forget = this.later(() => {
        this.waiting.delete(nr);
        reject(new ApiError('offline', 'the kernel does not answer', 'a cell may keep it busy; what was asked is done when it is free'));
      }, ANSWER_MS);
      this.waiting.set(nr, response => {
        forget();
        resolve(response);
      });
      this.model.send({ type: 'ask', nr, method: init.method ?? 'GET', path, body: typeof init.body === 'string' ? init.body : '' });
    });

  /** The live stream as a socket: it is open from the first word of the kernel on, and breaks when the kernel falls silent. */
  connect(): Socket {
    const socket: Socket = {
      send: text => this.model.send({ type: 'wanted', ...(JSON.parse(text) as object) }),
      close: () => {
        this.live.delete(told);
        forget();
      },
      onopen: null,
      onclose: null,
      onmessage: null
    };
    let opened = false;
    const silent = (): void => {
      this.live.delete(told);
      socket.onclose?.(new Event('close') as CloseEvent);
    };
    let forget = this.later(silent, SILENT_MS);
    const told = (message: unknown): void => {
      forget();
      forget = this.later(silent, SILENT_MS);
      if (!opened) {
        opened = true;
        socket.onopen?.(new Event('open'));
      }
      socket.onmessage?.(new MessageEvent('message', { data: JSON.stringify(message) }));
    };
    this.live.add(told);
    this.model.send({ type: 'wanted' });
    return socket;
  }

  dispose(): void {
    this.model.off('msg:custom', this.heard);
    this.live.clear();
  }

  private take(content: unknown, buffers: readonly DataView[]): void {
    if (!isFields(content)) {
      return;
    }
    if (content['type'] === 'live') {
      [...this.live].forEach(told => told(content['message']));
    } else if (content['type'] === 'answer' && typeof content['nr'] === 'string' && typeof content['status'] === 'number') {
      const answered = this.waiting.get(content['nr']);
      this.waiting.delete(content['nr']);
      answered?.(new Response(bytesOf(buffers[0]), { status: content['status'] }));
    }
  }
}

/** A copy: front ends hand over views of larger buffers. */
function bytesOf(view: DataView | undefined): Uint8Array<ArrayBuffer> {
  return view === undefined ? new Uint8Array() : new Uint8Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) as ArrayBuffer);
}
