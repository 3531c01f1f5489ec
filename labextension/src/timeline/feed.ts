/** The events of one session, in lanes, and where it branched. */
import type { Api } from '../api.js';
import type { Home } from '../branch/words.js';
import { Feed, type Fetched } from '../follow.js';
import type { EventLine } from '../wire.js';
import { Lanes } from './lanes.js';

/** A fork of this session: it begins at event `seq`. */
export interface Branch {
  sessionId: string;
  title: string;
  state: string;
  seq: number;
}

const MOST_BRANCHES = 12;
const FIRST_PAGE = 1000;
const PAGE = 5000;
const MAX_PAYLOAD = 1024;

export class EventFeed extends Feed {
  readonly events: EventLine[] = [];
  readonly lanes = new Lanes();
  branches: Branch[] = [];
  /** The session that this one was forked from. */
  parent: string | null = null;
  home: Home = { definition: '', notebook: null, cell: null };
  inherited = 0;

  constructor(
    private readonly api: Pick<Api, 'events' | 'detail'>,
    private readonly sessionId: string,
    changed: () => void
  ) {
    super(changed);
  }

  /** Look for forks, the newest ones. */
  async findBranches(): Promise<void> {
    const { children, parent, definition, notebook, cell } = await this.api.detail(this.sessionId);
    this.parent = parent;
    this.home = { definition, notebook, cell };
    const found = await Promise.all(
      children.slice(-MOST_BRANCHES).map(id =>
        this.api.detail(id).then(
          ({ shown, forkedAt, title }) => ({ sessionId: id, title: title || id, state: shown.card.state, seq: forkedAt ?? 0 }),
          () => null // a damaged child is no reason not to show the others
        )
      )
    );
    this.branches = found.filter(branch => branch !== null && branch.seq > 0) as Branch[];
    this.changed();
  }

  /** The sessions that this one may be compared with: its forks, newest first, and where it comes from. */
  relatives(): { sessionId: string; title: string }[] {
    const forks = [...this.branches].reverse().map(({ sessionId, title }) => ({ sessionId, title }));
    return this.parent === null ? forks : [...forks, { sessionId: this.parent, title: 'the session it was forked from' }];
  }

  protected get known(): number {
    return this.lanes.lastSeq;
  }

  protected async page(): Promise<Fetched> {
    const size = this.events.length === 0 ? FIRST_PAGE : PAGE;
    const page = await this.api.events(this.sessionId, this.lanes.lastSeq, size, MAX_PAYLOAD);
    this.take(page.events);
    this.inherited = page.inherited_until;
    return { more: page.events.length > 0, last: page.next === null };
  }

  private take(page: readonly EventLine[]): void {
    for (const event of page) {
      if (event.seq > this.lanes.lastSeq) {
        this.events.push(event);
        this.lanes.take(event);
      }
    }
  }
}
