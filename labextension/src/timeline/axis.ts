/**
 * Time as a place on the picture.
 *
 * A task that waited three days for an answer would be two dots with nothing between them: stretches in which nothing happened are
 * folded to a fixed small width, marked as such, so that work keeps its proportions.
 */

/** A stretch in which nothing happened: milliseconds since the epoch. */
export interface Gap {
  from: number;
  to: number;
}

/** How long a pause must be, as a share of all the rest, to be folded, and what is left of it. */
const FOLDED_SHARE = 0.25;
const LEFT_SHARE = 0.03;
const LEAST_GAP_MS = 60_000;

/** The long pauses between `times` (ascending) during which no bar of `busy` (start, end) was open. */
export function gapsOf(times: readonly number[], busy: readonly (readonly [number, number])[]): Gap[] {
  const starts = busy.map(([start]) => start).sort((a, b) => a - b);
  const ends = busy.map(([, end]) => end).sort((a, b) => a - b);
  const pauses: Gap[] = [];
  let [begun, over] = [0, 0];
  for (let at = 1; at < times.length; at++) {
    const [from, to] = [times[at - 1] ?? 0, times[at] ?? 0];
    if (to - from < LEAST_GAP_MS) {
      continue;
    }
    while (begun < starts.length && (starts[begun] ?? 0) < to) {
      begun++;
    }
    while (over < ends.length && (ends[over] ?? 0) <= from) {
      over++;
    }
    if (begun === over) {
      pauses.push({ from, to });
    }
  }
  const whole = (times[times.length - 1] ?? 0) - (times[0] ?? 0);
  const work = whole - pauses.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  return pauses.filter(gap => gap.to - gap.from > Math.max(LEAST_GAP_MS, FOLDED_SHARE * work));
}

export class Axis {
  /** Folded length, in milliseconds of work. */
  readonly length: number;
  private readonly left: number;

  constructor(
    readonly begin: number,
    readonly end: number,
    readonly gaps: readonly Gap[]
  ) {
    const hidden = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
    const work = Math.max(1, end - begin - hidden);
    this.left = work * LEFT_SHARE;
    this.length = work + gaps.length * this.left;
  }

  /** Where a time is, from 0 to `length`. */
  place(time: number): number {
    let saved = 0;
    for (const gap of this.gaps) {
      if (time >= gap.to) {
        saved += gap.to - gap.from - this.left;
      } else if (time > gap.from) {
        return gap.from - this.begin - saved + ((time - gap.from) / (gap.to - gap.from)) * this.left;
      } else {
        break;
      }
    }
    return time - this.begin - saved;
  }

  /** The time at a place. */
  time(place: number): number {
    let saved = 0;
    for (const gap of this.gaps) {
      const from = gap.from - this.begin - saved;
      if (place < from) {
        break;
      }
      if (place < from + this.left) {
        return gap.from + ((place - from) / this.left) * (gap.to - gap.from);
      }
      saved += gap.to - gap.from - this.left;
    }
    return this.begin + place + saved;
  }
}

/** What is seen of an axis: its part from `from` to `to`, drawn from `x0` to `x1` pixels. */
export class View {
  constructor(
    readonly axis: Axis,
    readonly from: number,
    readonly to: number,
    readonly x0: number,
    readonly x1: number
  ) {}

  x(time: number): number {
    return this.x0 + ((this.axis.place(time) - this.from) / (this.to - this.from)) * (this.x1 - this.x0);
  }

  time(x: number): number {
    return this.axis.time(this.from + ((x - this.x0) / (this.x1 - this.x0)) * (this.to - this.from));
  }

  /** Larger by `factor` around pixel `x`, within the whole. */
  zoomed(factor: number, x: number): [number, number] {
    const least = Math.max(1, this.axis.length / 5000);
    const width = Math.min(this.axis.length, Math.max(least, (this.to - this.from) / factor));
    const share = Math.min(1, Math.max(0, (x - this.x0) / (this.x1 - this.x0)));
    return this.within(this.from + share * (this.to - this.from - width), width);
  }

  /** Moved by `pixels`. */
  panned(pixels: number): [number, number] {
    const width = this.to - this.from;
    return this.within(this.from - (pixels / (this.x1 - this.x0)) * width, width);
  }

  private within(from: number, width: number): [number, number] {
    const start = Math.min(Math.max(0, from), this.axis.length - width);
    return [start, start + width];
  }
}

const STEPS_S = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800];

/** Round times since the beginning that are at least `apart` pixels from one another. */
export function ticks(view: View, apart = 90): { time: number; label: string }[] {
  const perPixel = (view.to - view.from) / (view.x1 - view.x0) / 1000;
  const step = STEPS_S.find(each => each >= perPixel * apart) ?? STEPS_S[STEPS_S.length - 1] ?? 1;
  const out: { time: number; label: string }[] = [];
  const { begin, end } = view.axis;
  let at = Math.ceil((view.time(view.x0) - begin) / 1000 / step);
  while (out.length < 40) {
    const time = begin + at * step * 1000;
    const x = view.x(time);
    if (x > view.x1 + 0.5 || time > end + step * 1000) {
      break;
    }
    out.push({ time, label: since(at * step) });
    at = Math.max(at + 1, Math.ceil((view.time(x + apart * 0.8) - begin) / 1000 / step));
  }
  return out;
}

/** "0", "2 min", "1 h 30". */
export function since(seconds: number): string {
  if (seconds === 0) {
    return '0';
  }
  if (seconds < 1) {
    return `${Math.round(seconds * 1000)} ms`;
  }
  if (seconds < 60) {
    return `${+seconds.toFixed(1)} s`;
  }
  const [minutes, rest] = [Math.floor(seconds / 60), Math.round(seconds % 60)];
  if (minutes < 60) {
    return rest === 0 ? `${minutes} min` : `${minutes}:${String(rest).padStart(2, '0')} min`;
  }
  const [hours, over] = [Math.floor(minutes / 60), minutes % 60];
  return hours >= 48 ? `${Math.round(hours / 24)} d` : over === 0 ? `${hours} h` : `${hours} h ${over}`;
}
