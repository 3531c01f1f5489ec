/** Timeline and log of a session: one set of events, two ways to read them, one cursor. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';

import type { Api } from '../api.js';
import { clockWithSeconds, line } from '../text.js';
import { facts } from '../view/facts.js';
import { FactView } from '../view/card.js';
import { Press } from '../view/press.js';
import { Glyph } from '../view/states.js';
import { VirtualList, evenly } from '../view/virtual.js';
import type { Card, EventLine } from '../wire.js';
import { TimelineCanvas } from './canvas.js';
import { EventFeed } from './feed.js';
import { LANES, LANE_NAMES, type Lane } from './lanes.js';
import type { Filter } from './paint.js';
import { isFailure, storyOf, wordsOf } from './story.js';

export interface HistoryProps {
  api: Pick<Api, 'events' | 'cardAt' | 'detail' | 'row'>;
  /** Open another session. */
  open: (sessionId: string) => void;
  sessionId: string;
  /** The newest event that the card knows of. */
  seq: number;
  running: boolean;
  log: boolean;
  timeline: boolean;
  tall?: boolean;
}

const LOG_ROW = 20;
const NOTHING: Filter = { hidden: new Set(), failuresOnly: false };

export function History(props: HistoryProps): JSX.Element {
  const { api, sessionId, seq } = props;
  const [version, setVersion] = useState(0);
  const feed = useMemo(() => new EventFeed(api, sessionId, () => setVersion(count => count + 1)), [sessionId]);
  useEffect(() => void feed.upTo(seq), [feed, seq]);
  useEffect(() => void feed.findBranches().catch(() => undefined), [feed]);
  const [cursor, setCursor] = useState<number | null>(null);
  const [range, setRange] = useState<[number, number] | null>(null);
  const [filter, setFilter] = useState<Filter>(NOTHING);
  const at = cursor === null ? null : (feed.events[cursor] ?? null);
  const past = usePast(api, sessionId, at?.seq ?? null);
  if (feed.problem !== '' && feed.events.length === 0) {
    return <p class="ipa-stale">the events cannot be read: {line(feed.problem, 300)}</p>;
  }
  return (
    <section class="ipa-history" aria-label="history">
      <div class="ipa-tools">
        {props.timeline ? <Kinds feed={feed} filter={filter} setFilter={setFilter} version={version} /> : null}
        <label class="ipa-check">
          <input
            type="checkbox"
            checked={filter.failuresOnly}
            onChange={event => setFilter({ ...filter, failuresOnly: event.currentTarget.checked })}
          />
          failures only
        </label>
        <span class="ipa-space" />
        {props.timeline && range !== null ? <Press name="fit" label="Whole" hint="show all of it" onPress={() => setRange(null)} /> : null}
        <span class="ipa-count">
          {feed.events.length.toLocaleString('en')} events{feed.complete ? '' : ' so far…'}
        </span>
      </div>
      {props.timeline ? (
        <TimelineCanvas
          lanes={feed.lanes}
          branches={feed.branches}
          open={props.open}
          version={version}
          filter={filter}
          range={range}
          setRange={setRange}
          cursor={cursor}
          setCursor={setCursor}
          running={props.running}
        />
      ) : null}
      {at === null ? null : <Past event={at} card={past} back={() => setCursor(null)} />}
      {props.log ? (
        <EventLog events={feed.events} version={version} failuresOnly={filter.failuresOnly} cursor={cursor} setCursor={setCursor} tall={props.tall ?? false} />
      ) : null}
    </section>
  );
}

function Kinds(props: { feed: EventFeed; filter: Filter; setFilter: (filter: Filter) => void; version: number }): JSX.Element {
  const { feed, filter, setFilter } = props;
  const used = useMemo(
    () => new Set<Lane>([...feed.lanes.bars.map(bar => bar.lane), ...feed.lanes.marks.map(mark => mark.lane)]),
    [props.version]
  );
  const toggle = (lane: Lane): void => {
    const hidden = new Set(filter.hidden);
    if (!hidden.delete(lane)) {
      hidden.add(lane);
    }
    setFilter({ ...filter, hidden });
  };
  return (
    <span class="ipa-kinds" role="group" aria-label="lanes">
      {LANES.filter(lane => used.has(lane)).map(lane => (
        <label key={lane} class="ipa-check">
          <input type="checkbox" checked={!filter.hidden.has(lane)} onChange={() => toggle(lane)} />
          <i class={`ipa-key ipa-key-${lane}`} />
          {LANE_NAMES[lane]}
        </label>
      ))}
    </span>
  );
}

/** The card at an event; while one is fetched the last one stays, and only the newest wish is fetched next. */
function usePast(api: Pick<Api, 'cardAt'>, sessionId: string, seq: number | null): Card | null {
  const [card, setCard] = useState<Card | null>(null);
  const wanted = useRef<number | null>(null);
  const busy = useRef(false);
  useEffect(() => {
    wanted.current = seq;
    const next = async (): Promise<void> => {
      busy.current = true;
      for (let at = wanted.current; at !== null; ) {
        const got = await api.cardAt(sessionId, at).catch(() => null);
        setCard(got);
        at = wanted.current === at ? null : wanted.current;
      }
      busy.current = false;
    };
    if (seq !== null && !busy.current) {
      void next();
    }
  }, [seq, sessionId]);
  return seq === null ? null : card;
}

function Past({ event, card, back }: { event: EventLine; card: Card | null; back: () => void }): JSX.Element {
  return (
    <div class="ipa-past" aria-live="polite">
      <p class="ipa-past-event">
        <span class="ipa-needs">at event {event.seq}</span> {clockWithSeconds(event.timestamp)} · {wordsOf(event.event_type)} {storyOf(event)}
        <span class="ipa-space" />
        <Press name="now" label="Back to now" onPress={back} />
      </p>
      <p class="ipa-now">
        {card === null ? (
          <span class="ipa-fact">rebuilding the state; nothing is executed…</span>
        ) : (
          [
            <Glyph key="glyph" state={card.state} needsYou={card.asks.length > 0} />,
            ...facts(card)
              .filter(each => each.id !== 'left')
              .map(each => <FactView key={each.id} fact={each} />)
          ]
        )}
      </p>
    </div>
  );
}

interface LogProps {
  events: readonly EventLine[];
  version: number;
  failuresOnly: boolean;
  cursor: number | null;
  setCursor: (cursor: number | null) => void;
  tall: boolean;
}

function EventLog(props: LogProps): JSX.Element {
  const { events, cursor, setCursor } = props;
  const shown = useMemo(
    () => events.map((_, at) => at).filter(at => !props.failuresOnly || isFailure(events[at] as EventLine)),
    [props.version, props.failuresOnly]
  );
  const offsets = useMemo(() => evenly(shown.length, LOG_ROW), [shown]);
  const row = (place: number): JSX.Element | null => {
    const index = shown[place];
    const event = index === undefined ? undefined : events[index];
    if (event === undefined || index === undefined) {
      return null;
    }
    const attempt = event.attempt !== null && event.attempt !== undefined && event.attempt > 1 ? ` (attempt ${event.attempt})` : '';
    const classes = ['ipa-event', isFailure(event) && 'ipa-bad', index === cursor && 'ipa-on'].filter(Boolean).join(' ');
    return (
      <div key={event.seq} class={classes} role="row" onClick={() => setCursor(index)}>
        <span role="cell">{event.seq}</span>
        <span role="cell">{clockWithSeconds(event.timestamp)}</span>
        <span role="cell">{wordsOf(event.event_type)}</span>
        <span role="cell" title={event.activity_id ?? ''}>
          {line(event.activity_id ?? '', 60)}
          {attempt}
        </span>
        <span role="cell">{storyOf(event)}</span>
      </div>
    );
  };
  return (
    <VirtualList
      class={props.tall ? 'ipa-log ipa-tall' : 'ipa-log'}
      role="table"
      label="events"
      offsets={offsets}
      row={row}
      followEnd={cursor === null}
      reveal={cursor === null ? null : shown.indexOf(cursor)}
    />
  );
}
