/** The drawn part of the timeline: lanes on a canvas, with zoom, pan, hover and a cursor to scrub with. */
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

import { clockWithSeconds, duration, line } from '../text.js';
import { useLatest } from '../view/latest.js';
import { Axis, View, gapsOf } from './axis.js';
import type { Branch } from './feed.js';
import { LANES, type Bar, type Lanes, type Mark } from './lanes.js';
import { LEFT, RIGHT, layout, paint, under, type Filter, type Palette } from './paint.js';

export interface CanvasProps {
  lanes: Lanes;
  branches: readonly Branch[];
  open: (sessionId: string) => void;
  /** Counts up when events were added. */
  version: number;
  filter: Filter;
  /** The part that is shown, null for the whole. */
  range: [number, number] | null;
  setRange: (range: [number, number] | null) => void;
  /** The event that is looked at, as its index; null for now. */
  cursor: number | null;
  setCursor: (cursor: number | null) => void;
  running: boolean;
}

const WIDEST = 4096;
const WAITING_SHARE = 0.12;

export function TimelineCanvas(props: CanvasProps): JSX.Element {
  const { lanes, branches, version, filter, range, setRange, cursor, setCursor, running } = props;
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [theme, setTheme] = useState(0);
  const [hover, setHover] = useState<{ x: number; y: number; over: Bar | Mark } | null>(null);
  const drag = useRef<{ x: number; moved: boolean } | null>(null);
  // what waits for an answer while nothing runs gets some room of its own, however long it has waited
  const waits = !running && lanes.bars.some(bar => bar.fate === 'waits');
  const now = running ? Math.max(Date.now(), lanes.end) : lanes.end + (waits ? WAITING_SHARE * (lanes.end - lanes.begin) : 0);

  useEffect(() => {
    const node = box.current;
    if (node === null) {
      return undefined;
    }
    const resized = new ResizeObserver(() => setWidth(Math.min(WIDEST, node.clientWidth)));
    resized.observe(node);
    const themed = new MutationObserver(() => setTheme(count => count + 1));
    themed.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-light', 'data-jp-theme-name'] });
    return () => {
      resized.disconnect();
      themed.disconnect();
    };
  }, []);

  const axis = useMemo(() => {
    const busy = lanes.bars.filter(bar => bar.lane !== 'stages' && bar.lane !== 'approvals' && (running || bar.end !== null));
    const gaps = gapsOf(
      lanes.times,
      busy.map(bar => [bar.start, bar.end ?? now] as const)
    );
    return new Axis(lanes.begin, Math.max(now, lanes.begin + 1), gaps);
  }, [version, running, Math.floor(now / 1000)]);
  const where = useMemo(() => layout(lanes, filter, branches.length), [version, filter, branches]);
  const [from, to] = range ?? [0, axis.length];
  const view = new View(axis, from, to, LEFT, Math.max(LEFT + 50, width - RIGHT));

  useLayoutEffect(() => {
    const node = canvas.current;
    const context = node?.getContext('2d');
    if (node === null || context === null || context === undefined || width === 0) {
      return;
    }
    const dense = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * dense), Math.round(where.height * dense)];
    if (node.width !== wide || node.height !== high) {
      node.width = wide;
      node.height = high;
    }
    context.setTransform(dense, 0, 0, dense, 0, 0);
    const began = performance.now();
    paint(context, { width, height: where.height }, lanes, where, view, paletteOf(node), filter, now);
    performance.measure('ipyagent:timeline-drawn', { start: began, end: performance.now() });
  }, [version, width, where, from, to, theme, axis]);

  const at = cursor === null ? null : (lanes.times[cursor] ?? null);
  const cursorX = at === null ? null : view.x(at);
  const scrubTo = (x: number): void => setCursor(Math.max(0, lanes.indexAt(view.time(x))));
  const zoom = (factor: number, x: number): void => {
    const next = view.zoomed(factor, x);
    setRange(next[1] - next[0] >= axis.length * 0.999 ? null : next);
  };
  const [latest, go] = useLatest(cursor, setCursor);
  const on = (events: number): void => {
    const from = latest();
    go(from === null || from + events >= lanes.seqs.length ? null : from + events);
  };
  const keys: Record<string, () => void> = {
    ArrowLeft: () => go(Math.max(0, (latest() ?? lanes.seqs.length) - 1)),
    ArrowRight: () => on(1),
    PageUp: () => go(Math.max(0, (latest() ?? lanes.seqs.length) - 20)),
    PageDown: () => on(20),
    Home: () => go(0),
    End: () => go(null),
    Escape: () => go(null),
    '+': () => zoom(1.6, cursorX ?? (view.x0 + view.x1) / 2),
    '-': () => zoom(1 / 1.6, cursorX ?? (view.x0 + view.x1) / 2),
    '0': () => setRange(null)
  };

  return (
    <div
      ref={box}
      class="ipa-lanes"
      role="slider"
      tabIndex={0}
      data-lm-suppress-shortcuts="true"
      aria-label={`timeline of ${lanes.seqs.length} events; arrow keys scrub, plus and minus zoom`}
      aria-valuemin={lanes.seqs[0] ?? 0}
      aria-valuemax={lanes.lastSeq}
      aria-valuenow={cursor === null ? lanes.lastSeq : (lanes.seqs[cursor] ?? lanes.lastSeq)}
      aria-valuetext={cursor === null ? 'now' : `event ${lanes.seqs[cursor] ?? ''}`}
      style={{ height: `${where.height}px` }}
      onKeyDown={event => {
        const act = keys[event.key];
        if (act !== undefined && !event.ctrlKey && !event.metaKey) {
          event.preventDefault();
          act();
        }
      }}
      onWheel={event => {
        if (event.ctrlKey || event.metaKey || event.altKey) {
          event.preventDefault();
          zoom(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX);
        } else if (range !== null && Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          setRange(view.panned(-event.deltaX));
        }
      }}
      onPointerDown={event => {
        event.currentTarget.setPointerCapture(event.pointerId);
        drag.current = { x: event.offsetX, moved: false };
        if (!event.shiftKey) {
          scrubTo(event.offsetX);
        }
      }}
      onPointerMove={event => {
        const [x, y] = [event.offsetX, event.offsetY];
        if (drag.current === null) {
          const over = under(x, y, lanes, where, view, filter, now);
          setHover(over === null ? null : { x, y, over });
        } else if (event.shiftKey && range !== null) {
          setRange(view.panned(x - drag.current.x));
          drag.current = { x, moved: true };
        } else if (!event.shiftKey) {
          scrubTo(x);
        }
      }}
      onPointerUp={() => (drag.current = null)}
      onPointerLeave={() => setHover(null)}
    >
      <canvas ref={canvas} aria-hidden="true" />
      {cursorX !== null && cursorX >= LEFT - 1 && cursorX <= view.x1 + 1 ? (
        <i class="ipa-cursor" style={{ transform: `translateX(${cursorX}px)` }} />
      ) : null}
      {where.branches.map(({ top }, at) => {
        const branch = branches[at];
        const place = branch === undefined ? -1 : lanes.indexAtSeq(branch.seq);
        return branch === undefined || place < 0 ? null : (
          <BranchView key={branch.sessionId} branch={branch} x={view.x(lanes.times[place] ?? 0)} top={top} from={where.stem} right={view.x1} open={props.open} />
        );
      })}
      {hover === null ? null : <Hover {...hover} width={width} now={now} />}
    </div>
  );
}

/** A fork: a line that leaves the lanes and ends in a button that opens it. */
function BranchView(props: { branch: Branch; x: number; top: number; from: number; right: number; open: (id: string) => void }): JSX.Element | null {
  const { branch, x, top, from, right } = props;
  if (x < LEFT - 1 || x > right) {
    return null;
  }
  const left = x > right - 160; // no room on the right
  const height = top + 8 - from;
  return (
    <span class="ipa-branch" style={{ left: `${x - 26}px`, top: `${from}px` }}>
      <svg width="52" height={height + 2} aria-hidden="true">
        <path d={`M26 0 C26 ${height * 0.7} ${left ? 20 : 32} ${height} ${left ? 2 : 50} ${height}`} fill="none" stroke="currentColor" />
      </svg>
      <button
        type="button"
        class="ipa-branch-name"
        style={{ top: `${height - 8}px`, ...(left ? { right: '50px' } : { left: '50px' }) }}
        title={`a fork at event ${branch.seq}, ${branch.state}: open it`}
        data-lm-suppress-shortcuts="true"
        onPointerDown={event => event.stopPropagation()}
        onClick={event => {
          event.stopPropagation();
          props.open(branch.sessionId);
        }}
      >
        {line(branch.title, 28)}
      </button>
    </span>
  );
}

function Hover({ x, y, over, width, now }: { x: number; y: number; over: Bar | Mark; width: number; now: number }): JSX.Element {
  const left = x > width / 2;
  const lines =
    'fate' in over
      ? [
          nameOf(over),
          `${fateOf(over)} · ${duration(((over.end ?? now) - over.start) / 1000)} · from ${clockWithSeconds(over.start)}`,
          over.note,
          over.last > over.first ? `events ${over.first} to ${over.last}` : `from event ${over.first} on`
        ]
      : [over.name, `${clockWithSeconds(over.at)} · event ${over.seq}`];
  return (
    <div
      class="ipa-hover"
      role="tooltip"
      style={{ top: `${y + 14}px`, ...(left ? { right: `${width - x + 8}px` } : { left: `${x + 10}px` }) }}
    >
      {lines.filter(Boolean).map((each, at) => (
        <div key={at} class={at === 0 ? 'ipa-hover-head' : ''}>
          {line(each, 160)}
        </div>
      ))}
    </div>
  );
}

function nameOf(bar: Bar): string {
  const name =
    bar.lane === 'stages' ? `stage ${bar.id} · ${bar.name}` : bar.lane === 'approvals' ? bar.name : (bar.id.split('/').pop() ?? bar.name);
  return bar.attempt > 1 ? `${name} · attempt ${bar.attempt}` : name;
}

function fateOf(bar: Bar): string {
  return { open: 'running', ok: 'done', failed: 'failed', lost: 'outcome unknown', waits: 'waits for an answer' }[bar.fate];
}

function paletteOf(node: Element): Palette {
  const style = getComputedStyle(node);
  const named = (name: string): string => style.getPropertyValue(`--ipa-${name}`).trim() || 'gray';
  return {
    text: named('fg'),
    muted: named('muted'),
    line: named('line'),
    soft: named('soft'),
    background: named('bg'),
    accent: named('accent'),
    step: named('step'),
    model: named('model'),
    tool: named('tool'),
    good: named('good'),
    warn: named('warn'),
    bad: named('bad'),
    font: `11px ${style.fontFamily}`
  };
}

export { LANES };
