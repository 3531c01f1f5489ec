/** A replay: the cursor walks over the events; nothing is executed. */
import { useEffect, useRef } from 'preact/hooks';

const LASTS_MS = 12_000;
export const STEP_MS = 80;
const SLOWEST_MS = 400;

/** How many events a step takes, and how long it stands: a short log is told event by event, a long one in about 12 seconds. */
export function paceOf(events: number): { by: number; ms: number } {
  const steps = LASTS_MS / STEP_MS;
  return events <= steps ? { by: 1, ms: Math.min(SLOWEST_MS, LASTS_MS / Math.max(1, events)) } : { by: Math.ceil(events / steps), ms: STEP_MS };
}

/** Where the cursor stands after a step; null at the end, which is now. */
export function stepped(cursor: number | null, by: number, events: number): number | null {
  const next = cursor === null ? 0 : cursor + by;
  return next >= events ? null : next;
}

/** Move the cursor while `playing`; `ended` is called when it has reached the last event. */
export function useReplay(playing: boolean, events: number, cursor: number | null, setCursor: (at: number | null) => void, ended: () => void): void {
  const now = useRef({ events, cursor });
  now.current = { events, cursor };
  useEffect(() => {
    if (!playing) {
      return undefined;
    }
    const { by, ms } = paceOf(now.current.events);
    const timer = setInterval(() => {
      const next = stepped(now.current.cursor, by, now.current.events);
      setCursor(next);
      if (next === null) {
        ended();
      }
    }, ms);
    return () => clearInterval(timer);
  }, [playing]);
}
