/** The lanes on a canvas, and what lies under a point of it. */
import type { View } from './axis.js';
import { ticks } from './axis.js';
import { LANES, LANE_NAMES, type Bar, type Lane, type Lanes, type Mark } from './lanes.js';

export interface Palette {
  text: string;
  muted: string;
  line: string;
  soft: string;
  background: string;
  accent: string;
  step: string;
  model: string;
  tool: string;
  good: string;
  warn: string;
  bad: string;
  font: string;
}

/** What is drawn: lanes in order, each from `top`, `height` high. */
export interface Layout {
  lanes: { lane: Lane; top: number; height: number; rows: number }[];
  /** Where forks are named, one line each, and where their stems begin. */
  branches: { top: number }[];
  stem: number;
  height: number;
}

export interface Filter {
  hidden: ReadonlySet<Lane>;
  failuresOnly: boolean;
}

export const LEFT = 84;
export const RIGHT = 10;
const TOP = 24;
const ROW = 14;
const THIN = 8;
const APART = 8;

/** Lanes that have something, from top to bottom; a lane with several rows gets thinner ones. */
export function layout(lanes: Lanes, filter: Filter, branches: number): Layout {
  const used = new Set<Lane>([...lanes.bars.map(bar => bar.lane), ...lanes.marks.map(mark => mark.lane)]);
  const out: Layout['lanes'] = [];
  let top = TOP;
  for (const lane of LANES) {
    if (!used.has(lane) || filter.hidden.has(lane)) {
      continue;
    }
    const rows = lanes.rows[lane];
    const height = rows === 1 ? ROW : rows * THIN;
    out.push({ lane, top, height, rows });
    top += height + APART;
  }
  const stem = (out[0]?.top ?? TOP) + (out[0]?.height ?? 0) + 4;
  const lines = filter.hidden.has('branches') ? [] : Array.from({ length: branches }, (_, at) => ({ top: top + at * (ROW + 4) }));
  return { lanes: out, branches: lines, stem, height: top + lines.length * (ROW + 4) + 2 };
}

const fails = (bar: Bar): boolean => bar.fate === 'failed' || bar.fate === 'lost';

export function barShown(bar: Bar, filter: Filter): boolean {
  return !filter.hidden.has(bar.lane) && (!filter.failuresOnly || fails(bar) || bar.lane === 'stages');
}

export function markShown(mark: Mark, filter: Filter): boolean {
  return !filter.hidden.has(mark.lane) && (!filter.failuresOnly || mark.bad);
}

export function paint(
  canvas: CanvasRenderingContext2D,
  size: { width: number; height: number },
  lanes: Lanes,
  where: Layout,
  view: View,
  colours: Palette,
  filter: Filter,
  now: number
): void {
  canvas.clearRect(0, 0, size.width, size.height);
  canvas.textBaseline = 'middle';
  canvas.font = colours.font;
  grid(canvas, size, view, colours);
  canvas.fillStyle = colours.muted;
  for (const { lane, top, height } of where.lanes) {
    canvas.fillText(LANE_NAMES[lane], 0, top + height / 2);
  }
  const [first] = where.branches;
  if (first !== undefined) {
    canvas.fillText('forks', 0, first.top + 8);
  }
  canvas.save();
  canvas.beginPath();
  canvas.rect(view.x0 - 5, 0, view.x1 - view.x0 + 10, size.height);
  canvas.clip();
  const painter = new Painter(canvas, view, colours);
  const tops = new Map(where.lanes.map(each => [each.lane, each]));
  for (const bar of lanes.bars) {
    const lane = tops.get(bar.lane);
    if (lane !== undefined && barShown(bar, filter)) {
      const height = lane.rows === 1 ? ROW : THIN - 1.5;
      painter.bar(bar, lane.top + (lane.rows === 1 ? 0 : bar.row * THIN), height, now);
    }
  }
  for (const mark of lanes.marks) {
    const lane = tops.get(mark.lane);
    if (lane !== undefined && markShown(mark, filter)) {
      painter.mark(mark, lane.top, lane.height);
    }
  }
  canvas.restore();
}

function grid(canvas: CanvasRenderingContext2D, size: { height: number }, view: View, colours: Palette): void {
  canvas.textAlign = 'left';
  for (const tick of ticks(view)) {
    const x = Math.round(view.x(tick.time)) + 0.5;
    canvas.fillStyle = colours.line;
    canvas.fillRect(x - 0.5, 17, 1, size.height - 19);
    canvas.fillStyle = colours.muted;
    const over = x + canvas.measureText(tick.label).width > view.x1 + RIGHT;
    canvas.textAlign = over ? 'right' : 'left';
    canvas.fillText(tick.label, over ? view.x1 + RIGHT : x, 8);
  }
  canvas.textAlign = 'left';
  for (const gap of view.axis.gaps) {
    const [from, to] = [view.x(gap.from), view.x(gap.to)];
    if (to < view.x0 || from > view.x1) {
      continue;
    }
    canvas.fillStyle = colours.soft;
    canvas.fillRect(from, 17, to - from, size.height - 19);
    canvas.fillStyle = colours.muted;
    canvas.textAlign = 'center';
    canvas.fillText('⫽', (from + to) / 2, 22);
    canvas.textAlign = 'left';
  }
}

/** Draws bars so that thousands of them cost what can be seen: one that lies within a pixel of its neighbour is left out. */
class Painter {
  private readonly painted = new Map<string, number>();

  constructor(
    private readonly canvas: CanvasRenderingContext2D,
    private readonly view: View,
    private readonly colours: Palette
  ) {}

  bar(bar: Bar, y: number, height: number, now: number): void {
    const { canvas, view, colours } = this;
    const x = view.x(bar.start);
    const end = view.x(bar.end ?? Math.max(now, bar.start));
    if (end < view.x0 || x > view.x1) {
      return;
    }
    const width = Math.max(1.5, end - x);
    const key = `${bar.lane} ${bar.row} ${bar.fate}`;
    if (width < 2 && (this.painted.get(key) ?? -Infinity) > x - 0.75) {
      return;
    }
    this.painted.set(key, x + width);
    const [left, wide] = [Math.max(x, view.x0 - 4), Math.min(width, view.x1 + 8 - x)];
    canvas.beginPath();
    canvas.roundRect(left, y, Math.max(1.5, wide - 0.5), height, Math.min(2.5, width / 2));
    this.style(bar);
    if (bar.lane === 'stages' || bar.lane === 'approvals') {
      this.inside(bar, left, y, wide, height);
    }
    canvas.fillStyle = colours.text;
  }

  mark(mark: Mark, top: number, height: number): void {
    const { canvas, view, colours } = this;
    const x = view.x(mark.at);
    if (x < view.x0 - 6 || x > view.x1 + 6) {
      return;
    }
    const key = `${mark.lane} ${mark.kind}`;
    if ((this.painted.get(key) ?? -Infinity) > x - 1) {
      return;
    }
    this.painted.set(key, x);
    canvas.beginPath();
    if (mark.kind === 'checkpoint') {
      diamond(canvas, x, top + height + 4, 4);
      canvas.fillStyle = colours.good;
    } else if (mark.kind === 'file') {
      canvas.rect(x - 1, top + 2, 2, height - 4);
      canvas.fillStyle = colours.tool;
    } else if (mark.kind === 'control') {
      canvas.arc(x, top + height / 2, 2.5, 0, 7);
      canvas.fillStyle = colours.muted;
    } else if (mark.kind === 'alarm') {
      canvas.moveTo(x, top + 2);
      canvas.lineTo(x + 5, top + 12);
      canvas.lineTo(x - 5, top + 12);
      canvas.fillStyle = colours.warn;
    } else {
      canvas.arc(x, top + height / 2, 4, 0, 7);
      canvas.fillStyle = mark.bad ? colours.bad : colours.accent;
    }
    canvas.fill();
  }

  private style(bar: Bar): void {
    const { canvas, colours } = this;
    const colour = this.colourOf(bar);
    if (bar.fate === 'open' || bar.fate === 'waits') {
      canvas.fillStyle = bar.fate === 'waits' ? `color-mix(in srgb, ${colours.warn} 14%, ${colours.background})` : colours.background;
      canvas.fill();
      canvas.strokeStyle = colour;
      canvas.setLineDash(bar.fate === 'waits' || bar.lane === 'stages' ? [] : [3, 2]);
      canvas.lineWidth = 1.2;
      canvas.stroke();
      canvas.setLineDash([]);
    } else if (bar.lane === 'stages') {
      canvas.fillStyle = colours.soft;
      canvas.fill();
      canvas.strokeStyle = colours.line;
      canvas.lineWidth = 1;
      canvas.stroke();
    } else {
      canvas.fillStyle = colour;
      canvas.fill();
    }
  }

  private colourOf(bar: Bar): string {
    const { colours } = this;
    if (bar.fate === 'failed') {
      return colours.bad;
    }
    if (bar.fate === 'lost' || bar.lane === 'approvals') {
      return colours.warn;
    }
    return { stages: colours.accent, activities: colours.step, model: colours.model, tools: colours.tool, points: colours.muted, branches: colours.muted }[bar.lane];
  }

  private inside(bar: Bar, x: number, y: number, width: number, height: number): void {
    const { canvas, colours } = this;
    if (width < 26 || height < 12) {
      return;
    }
    const room = Math.floor((width - 8) / 5.8);
    const name = bar.name.length > room ? `${bar.name.slice(0, Math.max(1, room - 1))}…` : bar.name;
    canvas.fillStyle = bar.lane === 'approvals' && bar.fate !== 'waits' ? colours.background : bar.fate === 'waits' ? colours.warn : colours.text;
    canvas.fillText(name, x + 4, y + height / 2 + 0.5);
  }
}

function diamond(canvas: CanvasRenderingContext2D, x: number, y: number, r: number): void {
  canvas.moveTo(x, y - r);
  canvas.lineTo(x + r, y);
  canvas.lineTo(x, y + r);
  canvas.lineTo(x - r, y);
}

/** The bar or mark under a point, the smallest first; null when there is none. */
export function under(x: number, y: number, lanes: Lanes, where: Layout, view: View, filter: Filter, now: number): Bar | Mark | null {
  const lane = where.lanes.find(each => y >= each.top - 2 && y <= each.top + each.height + APART);
  if (lane === undefined) {
    return null;
  }
  const mark = lanes.marks.find(each => each.lane === lane.lane && markShown(each, filter) && Math.abs(view.x(each.at) - x) <= 5);
  if (mark !== undefined && (mark.kind !== 'checkpoint' || y > lane.top + lane.height - 3)) {
    return mark;
  }
  const row = lane.rows === 1 ? 0 : Math.floor((y - lane.top) / THIN);
  let best: Bar | null = null;
  for (const bar of lanes.bars) {
    if (bar.lane === lane.lane && (lane.rows === 1 || bar.row === row) && barShown(bar, filter)) {
      const [from, to] = [view.x(bar.start), view.x(bar.end ?? now)];
      if (x >= from - 2 && x <= Math.max(to, from + 2) + 2 && (best === null || bar.start >= best.start)) {
        best = bar;
      }
    }
  }
  return best;
}
