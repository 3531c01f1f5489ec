/** A list of any length of which only what is seen is drawn. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

/** The first item whose end lies below `y`. `offsets` are where items begin, and at the end where the last one ends. */
export function itemAt(offsets: readonly number[], y: number): number {
  let [low, high] = [0, Math.max(0, offsets.length - 1)];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((offsets[middle + 1] ?? Infinity) > y) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/** The items to draw: from the first up to but not with the second, with a few more than fit. */
export function windowOf(offsets: readonly number[], scroll: number, height: number, extra = 6): [number, number] {
  const count = Math.max(0, offsets.length - 1);
  const first = Math.max(0, itemAt(offsets, scroll) - extra);
  const last = Math.min(count, itemAt(offsets, scroll + height) + 1 + extra);
  return [Math.min(first, last), last];
}

/** Where items begin that are all equally high. */
export function evenly(count: number, height: number): number[] {
  return Array.from({ length: count + 1 }, (_, at) => at * height);
}

export interface VirtualListProps {
  offsets: readonly number[];
  row: (index: number) => ComponentChildren;
  class: string;
  label: string;
  role: 'table' | 'listbox';
  /** The row to keep in view. */
  reveal?: number | null;
  /** Stay at the end while rows are added there, as long as the person has not scrolled away from it. */
  followEnd?: boolean;
  activeId?: string | undefined;
  tabIndex?: number;
  onKeyDown?: (event: KeyboardEvent) => void;
}

export function VirtualList(props: VirtualListProps): JSX.Element {
  const { offsets, reveal = null, followEnd = false } = props;
  const whole = offsets[offsets.length - 1] ?? 0;
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const placed = useRef(0);
  const [scroll, setScroll] = useState(0);
  const [height, setHeight] = useState(400);
  useEffect(() => {
    const node = box.current;
    if (node === null) {
      return undefined;
    }
    const watch = new ResizeObserver(() => setHeight(node.clientHeight));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    const node = box.current;
    if (node === null || !followEnd) {
      return;
    }
    // a person has scrolled away, and the browser has not told it yet
    if (node.scrollTop < Math.min(placed.current, node.scrollHeight - node.clientHeight) - 4) {
      atEnd.current = false;
    }
    if (atEnd.current) {
      node.scrollTop = node.scrollHeight;
      placed.current = node.scrollTop;
    }
  }, [whole, height, followEnd]);
  useLayoutEffect(() => {
    const node = box.current;
    if (node === null || reveal === null) {
      return;
    }
    const [top, bottom] = [offsets[reveal] ?? 0, offsets[reveal + 1] ?? whole];
    if (top < node.scrollTop) {
      node.scrollTop = top;
    } else if (bottom > node.scrollTop + node.clientHeight) {
      node.scrollTop = bottom - node.clientHeight;
    }
  }, [reveal]);
  const [first, last] = windowOf(offsets, scroll, height);
  const rows: ComponentChildren[] = [];
  for (let at = first; at < last; at++) {
    rows.push(props.row(at));
  }
  return (
    <div
      ref={box}
      class={props.class}
      role={props.role}
      aria-label={props.label}
      aria-activedescendant={props.activeId}
      tabIndex={props.tabIndex ?? 0}
      data-lm-suppress-shortcuts="true"
      onKeyDown={props.onKeyDown}
      onScroll={event => {
        const node = event.currentTarget;
        atEnd.current = node.scrollTop + node.clientHeight >= node.scrollHeight - 4;
        setScroll(node.scrollTop);
      }}
    >
      <div class="ipa-virtual" role="presentation" style={{ height: `${whole}px` }}>
        <div role="presentation" style={{ transform: `translateY(${offsets[first] ?? 0}px)` }}>
          {rows}
        </div>
      </div>
    </div>
  );
}
