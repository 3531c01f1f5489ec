/** The events of a conversation, fetched once, in order, and followed as long as somebody looks. */
import type { Api } from '../api.js';
import { Talk } from './talk.js';

const PAGE = 2000;
const MAX_PAYLOAD = 65_536;

export class TalkFeed {
  readonly talk = new Talk();
  complete = false;
  problem = '';
  private target = 0;
  private running: Promise<void> | null = null;

  constructor(
    private readonly api: Pick<Api, 'talk'>,
    private readonly sessionId: string,
    private readonly changed: () => void
  ) {}

  /** Fetch what is new up to `seq`. */
  upTo(seq: number): Promise<void> {
    this.target = Math.max(this.target, seq);
    this.running ??= this.fetch().finally(() => {
      this.running = null;
    });
    return this.running;
  }

  private async fetch(): Promise<void> {
    let more = true;
    while (more && (this.talk.seq < this.target || !this.complete)) {
      try {
        const page = await this.api.talk(this.sessionId, this.talk.seq, PAGE, MAX_PAYLOAD);
        page.events.filter(event => event.seq > this.talk.seq).forEach(event => this.talk.take(event));
        more = page.until > this.talk.seq;
        this.talk.seq = Math.max(this.talk.seq, page.until);
        this.complete = page.next === null;
        this.problem = '';
      } catch (error) {
        this.problem = error instanceof Error ? error.message : String(error);
        more = false;
      }
      this.changed();
    }
  }
}
