/** The drawn part of the timeline: lanes on a canvas, with zoom, pan, hover and a cursor to scrub with. */
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

import { clock, duration, line } from '../text.js';
import { Axis, View, gapsOf } from './axis.js';
import { LANES, type Bar, type Lanes, type Mark } from './lanes.js';
import { LEFT, RIGHT, layout, paint, under, type Filter, type Palette } from './paint.js';

export interface CanvasProps {
  lanes: Lanes;
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

export function TimelineCanvas(props: CanvasProps): JSX.Element {
  const { lanes, version, filter, range, setRange, cursor, setCursor, running } = props;
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [theme, setTheme] = useState(0);
  const [hover, setHover] = useState<{ x: number; y: number; over: Bar | Mark } | null>(null);
  const drag = useRef<{ x: number; moved: boolean } | null>(null);
  const now = running ? Math.max(Date.now(), lanes.end) : lanes.end;

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
  const where = useMemo(() => layout(lanes, filter), [version, filter]);
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
  const keys: Record<string, () => void> = {
    ArrowLeft: () => setCursor(Math.max(0, (cursor ?? lanes.seqs.length) - 1)),
    ArrowRight: () => setCursor(cursor === null || cursor >= lanes.seqs.length - 1 ? null : cursor + 1),
    PageUp: () => setCursor(Math.max(0, (cursor ?? lanes.seqs.length) - 20)),
    PageDown: () => setCursor(cursor === null || cursor + 20 >= lanes.seqs.length ? null : cursor + 20),
    Home: () => setCursor(0),
    End: () => setCursor(null),
    Escape: () => setCursor(null),
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
      {hover === null ? null : <Hover {...hover} width={width} now={now} />}
    </div>
  );
}

function Hover({ x, y, over, width, now }: { x: number; y: number; over: Bar | Mark; width: number; now: number }): JSX.Element {
  const left = x > width / 2;
  const lines =
    'fate' in over
      ? [
          `${over.lane === 'approvals' ? 'approval' : over.lane === 'stages' ? 'stage' : (over.id.split('/').pop() ?? over.name)}${over.attempt > 1 ? ` · attempt ${over.attempt}` : ''}`,
          `${fateOf(over)} · ${duration(((over.end ?? now) - over.start) / 1000)} · from ${clock(over.start)}`,
          over.lane === 'approvals' || over.lane === 'stages' ? over.name : '',
          over.note,
          `events ${over.first} to ${over.last}`
        ]
      : [over.name, `${clock(over.at)} · event ${over.seq}`];
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
