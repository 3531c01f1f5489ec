/** Something fetched in pages, once, in order, and followed as long as somebody looks. */
export abstract class Feed {
  complete = false;
  problem = '';
  private target = 0;
  private running: Promise<void> | null = null;

  constructor(protected readonly changed: () => void) {}

  /** Fetch what is new up to `seq`, the newest that anybody has told of. */
  upTo(seq: number): Promise<void> {
    this.target = Math.max(this.target, seq);
    this.running ??= this.fetch().finally(() => {
      this.running = null;
    });
    return this.running;
  }

  /** Up to which event it is known. */
  protected abstract get known(): number;

  /** Fetch and take one page. */
  protected abstract page(): Promise<Fetched>;

  private async fetch(): Promise<void> {
    let more = true;
    while (more && (this.known < this.target || !this.complete)) {
      try {
        const { more: found, last } = await this.page();
        more = found;
        this.complete = last;
        this.problem = '';
      } catch (error) {
        this.problem = error instanceof Error ? error.message : String(error);
        more = false;
      }
      this.changed();
    }
  }
}

export interface Fetched {
  /** Whether it brought anything: asking again may bring more. */
  more: boolean;
  /** Whether it was the last page so far. */
  last: boolean;
}
