/** Many changes, few pictures: the newest value of each key, handed over at most once an interval. */

/** Calls `run` after `ms` milliseconds; returns what takes that back. */
export type Delay = (run: () => void, ms: number) => () => void;

export const delay: Delay = (run, ms) => {
  const timer = setTimeout(run, ms);
  return () => clearTimeout(timer);
};

export class Coalescer<K, V> {
  private readonly waiting = new Map<K, V>();
  private cancel: (() => void) | null = null;

  /** The first value after a rest goes out at once; what follows within `interval` ms goes out together at its end. */
  constructor(
    private readonly deliver: (key: K, value: V) => void,
    private readonly interval: number,
    private readonly later: Delay = delay,
    private readonly merge: (old: V, fresh: V) => V = (_, fresh) => fresh
  ) {}

  put(key: K, value: V): void {
    const old = this.waiting.get(key);
    this.waiting.set(key, old === undefined ? value : this.merge(old, value));
    if (this.cancel === null) {
      this.flush();
    }
  }

  /** Forget what waits. */
  clear(): void {
    this.waiting.clear();
    this.cancel?.();
    this.cancel = null;
  }

  private flush(): void {
    const batch = [...this.waiting];
    this.waiting.clear();
    this.cancel =
      batch.length === 0
        ? null
        : this.later(() => {
            this.cancel = null;
            this.flush();
          }, this.interval);
    for (const [key, value] of batch) {
      this.deliver(key, value);
    }
  }
}
