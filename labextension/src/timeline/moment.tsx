/** The state at the event that is looked at, and what can be done from there. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import type { Api } from '../api.js';
import { ForkView, type Yard } from '../branch/fork.js';
import type { Home, Way } from '../branch/words.js';
import { clockWithSeconds } from '../text.js';
import { facts } from '../view/facts.js';
import { FactView } from '../view/card.js';
import { Press } from '../view/press.js';
import { Glyph } from '../view/states.js';
import type { Card, EventLine } from '../wire.js';
import { storyOf, wordsOf } from './story.js';

/** The card at an event; while one is fetched the last one stays, and only the newest wish is fetched next. */
export function usePast(api: Pick<Api, 'cardAt'>, sessionId: string, seq: number | null): Card | null {
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

export interface MomentProps {
  event: EventLine;
  card: Card | null;
  yard: Yard;
  sessionId: string;
  home: Home;
  /** Which form is open. */
  way: Way | null;
  setWay: (way: Way | null) => void;
  /** A replay is going on, so that nothing else can be asked for. */
  playing: boolean;
  back: () => void;
  made: () => void;
}

export function Moment(props: MomentProps): JSX.Element {
  const { event, card, way, setWay, playing } = props;
  const moves = playing ? 'stop the replay first' : '';
  return (
    <div class="ipa-past">
      <p class="ipa-past-event" aria-live={playing ? 'off' : 'polite'}>
        <span class="ipa-needs">at event {event.seq}</span>
        <span class="ipa-past-story">
          {clockWithSeconds(event.timestamp)} · {wordsOf(event.event_type)} {storyOf(event)}
        </span>
        <span class="ipa-space" />
        <Press
          name="fork"
          label="Fork here…"
          why={moves}
          hint="try another direction from here, in a new session"
          pressed={way === 'fork'}
          onPress={() => setWay(way === 'fork' ? null : 'fork')}
        />
        <Press
          name="rerun-here"
          label="Rerun from here…"
          why={moves}
          hint="do what follows again, for real"
          pressed={way === 'rerun'}
          onPress={() => setWay(way === 'rerun' ? null : 'rerun')}
        />
        <Press name="now" label="Back to now" onPress={props.back} />
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
      {way === null ? null : (
        <ForkView
          key={`${way} ${event.seq}`}
          yard={props.yard}
          sessionId={props.sessionId}
          at={event.seq}
          way={way}
          home={props.home}
          made={props.made}
          close={() => setWay(null)}
        />
      )}
    </div>
  );
}
