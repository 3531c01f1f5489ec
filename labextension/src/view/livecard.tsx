/** A card that follows its session: what the server tells, aged by this page's clock. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import { ApiError } from '../api-errors.js';
import type { Desk } from '../desk.js';
import type { TaskRef } from '../guards.js';
import type { Link } from '../live.js';
import { block, line } from '../text.js';
import { TalkView } from '../talk/view.js';
import { History, type Intent } from '../timeline/timeline.js';
import type { Problem, Shown } from '../wire.js';
import { pastCard } from './past.js';
import { CardView } from './card.js';

export interface LiveCardProps {
  desk: Desk;
  task: TaskRef;
  /** The notebook that the session belongs to, when it is known; else the one around the card is taken. */
  notebook: string | null;
  /** What the notebook itself says in plain text, for when the server says nothing. */
  saved: string;
  open?: boolean;
  /** What it was opened for. */
  intent?: Intent | null;
}

/** A picture and when it came. */
interface Picture {
  shown: Shown;
  at: number;
}

export function LiveCard(props: LiveCardProps): JSX.Element {
  const { desk, task } = props;
  const box = useRef<HTMLDivElement>(null);
  const { live, problem } = useSession(desk, task.session_id);
  const [link, setLink] = useState<Link>(desk.feed.link);
  const [, setChanged] = useState(0);
  useEffect(() => desk.feed.onLink(setLink), [desk]);
  useEffect(() => desk.onChange(id => id === task.session_id && setChanged(count => count + 1)), [desk, task.session_id]);
  const moved = live !== null && task.task_id !== '' && live.shown.card.task_id !== task.task_id;
  const past = usePastTask(desk, task, moved);
  const picture = moved ? past : live;
  useTicking(picture !== null && !moved);
  const { session_id } = task;
  const state = picture?.shown.card.state ?? '';
  const was = useRef('');
  useEffect(() => {
    if (was.current !== '' && was.current !== state) {
      desk.forget(session_id);
    }
    was.current = state;
  }, [state]);
  let content: JSX.Element;
  if (picture !== null) {
    const { card } = picture.shown;
    const where = { notebook: props.notebook, near: box.current };
    const door = desk.kernels.door({ ...where, sessionId: session_id });
    content = (
      <CardView
        shown={picture.shown}
        age={moved ? 0 : (Date.now() - picture.at) / 1000}
        link={moved ? 'open' : link}
        who={desk.who}
        doing={desk.doing(session_id)}
        door={door}
        notice={moved ? null : desk.notice(session_id)}
        act={deed => void desk.act(card, deed, where)}
        load={name => desk.api.blob(session_id, name)}
        talk={
          card.kind === 'agent' ? (
            <TalkView
              api={desk.api}
              draw={desk.draw}
              sessionId={session_id}
              task={task.task_id}
              seq={card.seq}
              partial={picture.shown.partial}
              running={card.state === 'running'}
              tall={props.open ?? false}
            />
          ) : undefined
        }
        openTimeline={props.open ?? false}
        openLog={props.open ?? false}
        below={open => (
          <History
            api={desk.api}
            yard={{
              api: desk.api,
              open: desk.open,
              door,
              resume: id => desk.kernels.resume({ ...where, sessionId: id }, desk.progress(session_id)).finally(() => desk.forget(session_id))
            }}
            intent={props.intent ?? null}
            sessionId={session_id}
            seq={card.seq}
            running={card.state === 'running'}
            tall={props.open ?? false}
            {...open}
          />
        )}
      />
    );
  } else if (problem !== '' || link === 'missing' || link === 'differs') {
    content = <Saved text={props.saved} why={problem || (link === 'missing' ? MISSING : DIFFERS)} />;
  } else {
    content = (
      <article class="ipa-card ipa-waiting" aria-busy="true">
        <p class="ipa-now">{link === 'waiting' ? `${desk.who} does not answer; it is tried again by itself` : ' '}</p>
      </article>
    );
  }
  return (
    <div class="ipa-host" ref={box}>
      {content}
    </div>
  );
}

const MISSING = 'the server part of ipyagent is not running here, so this is the picture as it was saved';
const DIFFERS = 'this page and the server part of ipyagent are of versions that do not fit; reload the page';

/** What remains when the server cannot tell: one honest line, and the notebook's own text. */
export function Saved({ text, why }: { text: string; why: string }): JSX.Element {
  return (
    <article class="ipa-card ipa-saved">
      <p class="ipa-stale">{line(why, 300)}</p>
      {text === '' ? null : <pre class="ipa-saved-text">{block(text.slice(0, 20_000))}</pre>}
    </article>
  );
}

function useSession(desk: Desk, sessionId: string): { live: Picture | null; problem: string } {
  const [live, setLive] = useState<Picture | null>(null);
  const [problem, setProblem] = useState('');
  useEffect(() => {
    const told = (what: Problem): void => {
      setProblem(what.error === 'NotFound' ? `${UNKNOWN} (${what.message})` : [what.message, what.hint].filter(Boolean).join('; '));
      setLive(null);
    };
    return desk.feed.watch(sessionId, {
      shown: (shown, at) => {
        setLive({ shown, at });
        setProblem('');
      },
      problem: told
    });
  }, [desk, sessionId]);
  return { live, problem };
}

const UNKNOWN = 'the store of this Jupyter server does not have this session, so this is the picture as it was saved';

/** The last picture of a task whose session has gone on to another one. */
function usePastTask(desk: Desk, task: TaskRef, wanted: boolean): Picture | null {
  const [past, setPast] = useState<Picture | null>(null);
  useEffect(() => {
    let alive = true;
    if (wanted) {
      void pastCard(desk.api, task)
        .catch((error: unknown) => (error instanceof ApiError ? null : Promise.reject(error)))
        .then(card => {
          if (alive && card !== null) {
            setPast({ shown: { session_id: task.session_id, card, partial: '', silent_since: null, holder: null }, at: 0 });
          }
        });
    }
    return () => {
      alive = false;
    };
  }, [wanted, task.session_id, task.task_id]);
  return past;
}

/** Draw again each second while the page is seen. */
function useTicking(on: boolean): void {
  const [, setTick] = useState(0);
  useEffect(() => {
    if (!on) {
      return undefined;
    }
    const timer = setInterval(() => document.hidden || setTick(count => count + 1), 1000);
    return () => clearInterval(timer);
  }, [on]);
}
