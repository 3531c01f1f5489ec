/** The list of sessions beside the notebooks. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';

import * as text from '../text.js';
import { useLatest } from '../view/latest.js';
import { Press } from '../view/press.js';
import { Glyph } from '../view/states.js';
import { VirtualList } from '../view/virtual.js';
import type { Row } from '../wire.js';
import { Filters } from './filters.js';
import { EVERYTHING, SORTS, detailOf, filterText, groupOf, itemsOf, progressOf, type GroupId, type Item, type SortId } from './groups.js';
import { Teach, Trouble } from './plain.js';
import type { RowStore } from './rows.js';

export interface PanelProps {
  store: RowStore;
  /** The path of the notebook in front, null when there is none. */
  notebook: string | null;
  isSame: (path: string, recorded: string) => boolean;
  /** What is being done with a session, or was the outcome of it; empty when there is nothing to tell. */
  note: (sessionId: string) => string;
  open: (row: Row) => void;
  menu: (row: Row, x: number, y: number) => void;
}

const HEAD = 28;
const ROW = 44;

export function PanelView(props: PanelProps): JSX.Element {
  const { store, notebook } = props;
  const version = useVersion(store);
  const [words, setWords] = useState('');
  const [sort, setSort] = useState<SortId>('-updated');
  const [mine, setMine] = useState(false);
  const [filter, setFilter] = useState(EVERYTHING);
  const [filtering, setFiltering] = useState(false);
  const [folded, setFolded] = useState<ReadonlySet<GroupId>>(new Set());
  const [active, setActive] = useState<string | null>(null);
  const chosen = mine ? notebook : null;
  const items = useMemo(
    () => itemsOf(store.rows.values(), { words, sort, notebook: chosen, filter, folded }, recorded => chosen !== null && props.isSame(chosen, recorded)),
    [version, words, sort, chosen, filter, folded]
  );
  const filtered = filterText(filter);
  const fold = (id: GroupId): void => {
    const next = new Set(folded);
    if (!next.delete(id)) {
      next.add(id);
    }
    setFolded(next);
  };
  return (
    <div class="ipa-panel">
      <div class="ipa-panel-top">
        <div class="ipa-search-row">
          <input
            class="ipa-search"
            type="search"
            placeholder="Search sessions"
            aria-label="search sessions"
            value={words}
            data-lm-suppress-shortcuts="true"
            onInput={event => setWords(event.currentTarget.value)}
          />
          <Press name="filter" label="Filter" hint="by state, notebook, model or cost" pressed={filtering} onPress={() => setFiltering(!filtering)} />
        </div>
        <div class="ipa-tools">
          <label class="ipa-check" title={notebook === null ? 'no notebook is in front' : text.line(notebook, 200)}>
            <input type="checkbox" checked={mine} disabled={notebook === null} onChange={event => setMine(event.currentTarget.checked)} />
            this notebook
          </label>
          <span class="ipa-space" />
          <label class="ipa-sort">
            <select value={sort} aria-label="order" onChange={event => setSort(event.currentTarget.value as SortId)}>
              {SORTS.map(each => (
                <option key={each.id} value={each.id}>
                  {each.name}
                </option>
              ))}
            </select>
          </label>
        </div>
        {filtering ? <Filters store={store} version={version} filter={filter} setFilter={setFilter} /> : null}
        {filtering || filtered === '' ? null : (
          <div class="ipa-tools">
            <span class="ipa-filtered">only {filtered}</span>
            <span class="ipa-space" />
            <Press name="filter-off" label="Show all" onPress={() => setFilter(EVERYTHING)} />
          </div>
        )}
      </div>
      {store.trouble !== null ? <Trouble store={store} /> : null}
      {store.rows.size === 0 && store.trouble === null ? (
        store.loading ? <p class="ipa-empty">reading the sessions…</p> : <Teach />
      ) : items.length === 0 && store.trouble === null ? (
        <p class="ipa-empty">
          Nothing fits {words === '' ? filtered || 'this notebook' : `“${text.line(words, 40)}”`}.{' '}
          <Press name="clear" label="Show all" onPress={() => (setWords(''), setMine(false), setFilter(EVERYTHING))} />
        </p>
      ) : (
        <Rows {...props} items={items} active={active} setActive={setActive} fold={fold} />
      )}
    </div>
  );
}

function useVersion(store: RowStore): number {
  const [version, setVersion] = useState(store.version);
  useEffect(() => {
    store.open();
    const timer = setInterval(() => document.hidden || setVersion(store.version + Math.random()), 20_000); // ages go on
    const unlisten = store.onChange(() => setVersion(store.version));
    return () => {
      clearInterval(timer);
      unlisten();
      store.close();
    };
  }, [store]);
  return version;
}

interface RowsProps extends PanelProps {
  items: readonly Item[];
  active: string | null;
  setActive: (id: string | null) => void;
  fold: (id: GroupId) => void;
}

const idOf = (item: Item): string => (item.kind === 'group' ? `group ${item.id}` : item.row.session_id);

function Rows({ items, active, setActive, fold, note, open, menu }: RowsProps): JSX.Element {
  const offsets = useMemo(() => {
    const out = [0];
    for (const item of items) {
      out.push((out[out.length - 1] ?? 0) + (item.kind === 'group' ? HEAD : ROW));
    }
    return out;
  }, [items]);
  const [latest, setLatest] = useLatest(active, setActive);
  const place = (id: string | null): number => items.findIndex(item => idOf(item) === id);
  const at = place(active);
  const go = (to: number): void => {
    const item = items[Math.min(items.length - 1, Math.max(0, to))];
    if (item !== undefined) {
      setLatest(idOf(item));
    }
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = place(latest());
    const item = items[at];
    const keys: Record<string, () => void> = {
      ArrowDown: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      PageDown: () => go(at + 10),
      PageUp: () => go(at - 10),
      Home: () => go(0),
      End: () => go(items.length - 1),
      Enter: () => item && (item.kind === 'group' ? fold(item.id) : open(item.row)),
      ' ': () => item && (item.kind === 'group' ? fold(item.id) : open(item.row)),
      ContextMenu: () => showMenu(item),
      F10: () => event.shiftKey && showMenu(item)
    };
    const showMenu = (what: Item | undefined): void => {
      const node = document.getElementById(optionId(latest() ?? ''));
      if (what?.kind === 'row' && node !== null) {
        const box = node.getBoundingClientRect();
        menu(what.row, box.left + 24, box.top + box.height / 2);
      }
    };
    const act = keys[event.key];
    if (act !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      act();
    }
  };
  const now = Date.now();
  return (
    <VirtualList
      class="ipa-rows"
      role="listbox"
      label="sessions"
      offsets={offsets}
      reveal={at < 0 ? null : at}
      activeId={at < 0 ? undefined : optionId(active ?? '')}
      onKeyDown={onKeyDown}
      row={index => {
        const item = items[index];
        if (item === undefined) {
          return null;
        }
        const on = idOf(item) === active;
        return item.kind === 'group' ? (
          <GroupHead key={item.id} item={item} on={on} fold={() => fold(item.id)} />
        ) : (
          <RowView
            key={item.row.session_id}
            row={item.row}
            on={on}
            now={now}
            note={note(item.row.session_id)}
            place={[index + 1, items.length]}
            open={() => {
              setActive(item.row.session_id);
              open(item.row);
            }}
            menu={(x, y) => {
              setActive(item.row.session_id);
              menu(item.row, x, y);
            }}
          />
        );
      }}
    />
  );
}

const optionId = (id: string): string => `ipa-option-${id.replace(/[^A-Za-z0-9]/g, '-')}`;

function GroupHead({ item, on, fold }: { item: Extract<Item, { kind: 'group' }>; on: boolean; fold: () => void }): JSX.Element {
  return (
    <div
      id={optionId(idOf(item))}
      class={on ? 'ipa-group ipa-on' : 'ipa-group'}
      role="option"
      aria-selected={on}
      aria-expanded={!item.folded}
      onClick={fold}
    >
      <span class={item.folded ? 'ipa-caret' : 'ipa-caret ipa-down'} aria-hidden="true" />
      {item.name} <span class="ipa-count">{item.count}</span>
    </div>
  );
}

interface RowProps {
  row: Row;
  on: boolean;
  now: number;
  note: string;
  place: [number, number];
  open: () => void;
  menu: (x: number, y: number) => void;
}

function RowView({ row, on, now, note, place, open, menu }: RowProps): JSX.Element {
  const title = text.line(row.title || row.target || row.session_id, 120);
  const needsYou = groupOf(row) === 'needs';
  const detail = note === '' ? detailOf(row, now) : text.line(note, 120);
  return (
    <div
      id={optionId(row.session_id)}
      class={['ipa-row', on && 'ipa-on', needsYou && 'ipa-needy'].filter(Boolean).join(' ')}
      role="option"
      aria-selected={on}
      aria-posinset={place[0]}
      aria-setsize={place[1]}
      title={`${title}\n${needsYou ? 'needs you' : row.state} · ${detail}`}
      data-session={row.session_id}
      onClick={open}
      onContextMenu={event => {
        event.preventDefault();
        event.stopPropagation();
        menu(event.clientX, event.clientY);
      }}
    >
      <Glyph state={row.state} needsYou={needsYou} />
      <span class="ipa-row-title">{title}</span>
      <span class="ipa-row-progress">{progressOf(row)}</span>
      <span class="ipa-row-detail">{detail}</span>
      <button
        type="button"
        class="ipa-more"
        tabIndex={-1}
        aria-label={`actions of ${title}`}
        onClick={event => {
          event.stopPropagation();
          const box = event.currentTarget.getBoundingClientRect();
          menu(box.left, box.bottom);
        }}
      >
        ⋯
      </button>
    </div>
  );
}
