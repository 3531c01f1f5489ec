/** Timeline and log of a session: one set of events, two ways to read them, one cursor. */
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';

import type { Api } from '../api.js';
import { CompareView } from '../branch/compare.js';
import type { Yard } from '../branch/fork.js';
import type { Way } from '../branch/words.js';
import { clockWithSeconds, line } from '../text.js';
import { Press } from '../view/press.js';
import { VirtualList, evenly } from '../view/virtual.js';
import type { EventLine } from '../wire.js';
import { TimelineCanvas } from './canvas.js';
import { EventFeed } from './feed.js';
import { LANES, LANE_NAMES, type Lane } from './lanes.js';
import { Moment, usePast } from './moment.js';
import type { Filter } from './paint.js';
import { useReplay } from './replay.js';
import { isFailure, storyOf, wordsOf } from './story.js';

/** What a session is opened for. */
export type Intent = Way | 'replay' | 'compare';

export interface HistoryProps {
  api: Pick<Api, 'events' | 'cardAt' | 'detail' | 'compare'>;
  yard: Yard;
  /** What is begun as soon as the events are there. */
  intent?: Intent | null;
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
  const [way, setWay] = useState<Way | null>(null);
  const [playing, setPlaying] = useState(false);
  const [beside, setBeside] = useState(props.intent === 'compare');
  const at = cursor === null ? null : (feed.events[cursor] ?? null);
  const past = usePast(api, sessionId, at?.seq ?? null);
  const look = (index: number | null): void => {
    setPlaying(false);
    setCursor(index);
    if (index === null) {
      setWay(null);
    }
  };
  useReplay(playing, feed.events.length, cursor, setCursor, () => setPlaying(false));
  const begun = useRef(false);
  useEffect(() => {
    if (!feed.complete || begun.current) {
      return;
    }
    begun.current = true;
    if (props.intent === 'replay') {
      setPlaying(true);
    } else if (props.intent === 'fork' || props.intent === 'rerun') {
      setCursor(feed.events.length - 1);
      setWay(props.intent);
    }
  }, [feed, feed.complete]);
  const others = feed.relatives();
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
        {props.timeline ? (
          <Press
            name="replay"
            label={playing ? 'Stop' : 'Replay'}
            reserve="Replay"
            hint="show it again from the first event; nothing is executed"
            why={feed.complete ? '' : 'the events are being read'}
            onPress={() => {
              setWay(null);
              setPlaying(!playing);
              setCursor(playing ? cursor : null);
            }}
          />
        ) : null}
        {others.length > 0 ? (
          <Press name="compare" label="Compare" hint="with its forks, or the session it was forked from" pressed={beside} onPress={() => setBeside(!beside)} />
        ) : null}
        {props.timeline && range !== null ? <Press name="fit" label="Whole" hint="show all of it" onPress={() => setRange(null)} /> : null}
        <span class="ipa-count">
          {feed.events.length.toLocaleString('en')} events{feed.complete ? '' : ' so far…'}
        </span>
      </div>
      {props.timeline ? (
        <TimelineCanvas
          lanes={feed.lanes}
          branches={feed.branches}
          open={props.yard.open}
          version={version}
          filter={filter}
          range={range}
          setRange={setRange}
          cursor={cursor}
          setCursor={look}
          running={props.running}
        />
      ) : null}
      {at === null ? null : (
        <Moment
          event={at}
          card={past}
          yard={props.yard}
          sessionId={sessionId}
          home={feed.home}
          way={way}
          setWay={setWay}
          playing={playing}
          back={() => look(null)}
          made={() => void feed.findBranches().catch(() => undefined)}
        />
      )}
      {beside && others.length > 0 ? <CompareView api={api} sessionId={sessionId} others={others} seq={seq} open={props.yard.open} /> : null}
      {props.log ? (
        <EventLog events={feed.events} version={version} failuresOnly={filter.failuresOnly} cursor={cursor} setCursor={look} tall={props.tall ?? false} />
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
