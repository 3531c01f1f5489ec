/** The events of a conversation, as a talk. */
import type { Api } from '../api.js';
import { Feed, type Fetched } from '../follow.js';
import { Talk } from './talk.js';

const PAGE = 2000;
const MAX_PAYLOAD = 65_536;

export class TalkFeed extends Feed {
  readonly talk = new Talk();

  constructor(
    private readonly api: Pick<Api, 'talk'>,
    private readonly sessionId: string,
    changed: () => void
  ) {
    super(changed);
  }

  protected get known(): number {
    return this.talk.seq;
  }

  protected async page(): Promise<Fetched> {
    const page = await this.api.talk(this.sessionId, this.talk.seq, PAGE, MAX_PAYLOAD);
    page.events.filter(event => event.seq > this.talk.seq).forEach(event => this.talk.take(event));
    const more = page.until > this.talk.seq;
    this.talk.seq = Math.max(this.talk.seq, page.until);
    return { more, last: page.next === null };
  }
}
