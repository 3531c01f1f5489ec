// The contract with the server part: docs/server-api.md, made from its Python shapes. A test compares the two.

/** The body of every answer that is not 2xx.
 *
 *  `error` is the type (`NotFound`, `ControlRefused`, ...), `message` what happened and where, `hint` what to do next, or
 *  empty. */
export interface Problem {
  error: string;
  message: string;
  hint: string;
  status: number;
}

/** Who answers, over which store.  `differences` are sentences about what does not fit the asker (`?version=` and
 *  `?store=`). */
export interface Status {
  api: number;
  version: string;
  python: string;
  jupyter_server: string;
  store_id: string;
  store: string;
  format: number;
  sessions: number;
  filling: boolean;
  watching: string;
  differences: string[];
}

/** A session in a list.
 *
 *  `state` is the effective one: a state of the lifecycle, `lost`, `empty` (no task yet) or `damaged` (then `problem` says
 *  why, and what could not be read is empty).  `silent_since` is when a holder that should be alive was last heard of, once
 *  that is longer ago than two heartbeats. */
export interface Row {
  session_id: string;
  state: string;
  title: string;
  task_id: string | null;
  target: string;
  notebook: string | null;
  reason: string;
  detail: string;
  done: number;
  total: number | null;
  failed: number;
  needs_you: number;
  tasks: number;
  cost_usd: number;
  input_tokens: number;
  output_tokens: number;
  created_at: string;
  updated_at: string;
  parent: string | null;
  model: string;
  silent_since: number | null;
  problem: string;
}

/** How many sessions there are, in each effective state, and how many wait for a person.  Filters do not change it. */
export interface Counts {
  total: number;
  needs_you: number;
  states: Record<string, number>;
}

/** A page of the list.
 *
 *  `next` is the cursor of the page after it, null on the last one; `matched` counts the rows of all pages.  `filling` says
 *  that the server still reads older sessions: `matched` and `counts` will grow.  `left_out` sessions are older than the
 *  server keeps. */
export interface Page {
  rows: Row[];
  next: string | null;
  matched: number;
  counts: Counts;
  revision: number;
  filling: boolean;
  left_out: number;
}

/** A session's current task as it is shown.  `partial` is the end of an answer that is still being streamed. */
export interface Shown {
  session_id: string;
  card: Card;
  partial: string;
  silent_since: number | null;
  holder: string | null;
}

/** What is shown of a task.  Times in seconds, sizes in bytes, None where it is not known.
 *
 *  `kind` is workflow or agent.  `requests` counts the task's model requests, `unpriced` those whose price nobody knows;
 *  tokens and cost are the task's as well.  `partial` is what has come of the answer.  `pausing` says that a pause waits for
 *  open activities.  `actions` maps pause, resume, cancel, log to the reason why it is not allowed now, empty when it is. */
export interface Card {
  session_id: string;
  task_id: string;
  title: string;
  target: string;
  state: string;
  headline: string;
  reason: string;
  detail: string;
  elapsed_s: number;
  done: number;
  total: number | null;
  failed: number;
  retried: number;
  stage: string;
  stage_name: string;
  now: string[];
  text: string;
  remaining_s: number | null;
  remaining_basis: string;
  checkpoint_age_s: number | null;
  checkpoint_label: string;
  checkpoint_seq: number | null;
  checkpoint_next_s: number | null;
  durability: string;
  risk: string;
  cpu_percent: number | null;
  memory: number | null;
  memory_total: number | null;
  disk_used_percent: number | null;
  tokens: number;
  cost_usd: number;
  asks: Ask[];
  alarms: string[];
  actions: Record<string, string>;
  seq: number;
  goal: string | null;
  attempt: number;
  recoveries: number;
  recovery: string;
  kind: string;
  model: string;
  requests: number;
  partial: string;
  unpriced: number;
  pausing: boolean;
}

/** Something that waits for a person.  `details` is JSON text, or, when the whole is the blob `details_blob`, the beginning
 *  of it; `digest` is what an answer confirms.
 *
 *  Nobody having answered until `expires_at` counts as denied.  A tool call (`kind` tool) has its `tool`, `arguments` and
 *  `effect` in the details, and may be approved with other arguments. */
export interface Ask {
  approval_id: string;
  question: string;
  details: string;
  digest: string;
  kind: string;
  choices: string[];
  if_ignored: string;
  since_s: number;
  expires_at: string | null;
  details_blob: string | null;
}

/** All about a session.  Events up to `inherited_until` (0 when it is no fork) belong to its ancestors.
 *
 *  `cell` is the id of the notebook's cell that started the task, `definition` where its workflow is found: a module, or
 *  `__main__` when it lives in the kernel of its notebook. */
export interface Detail {
  shown: Shown;
  title: string;
  header: Header;
  tasks: TaskLine[];
  checkpoints: Info[];
  children: string[];
  inherited_until: number;
  model: string;
  cell: string | null;
  definition: string;
}

/** `session.json`, written once, and once more when a parent is deleted.  `store` is the id of the store the session was
 *  made in; `foreign` says that it took over events that were made elsewhere.  `workspace` is where an isolated fork works,
 *  below the store's `w`. */
export interface Header {
  format: number;
  session_id: string;
  created: string;
  notebook?: string | null;
  parent?: Parent | null;
  store?: string | null;
  foreign?: boolean;
  workspace?: string | null;
}

/** Where a fork begins: the parent's event `seq`, whose sha256 is `hash`. */
export interface Parent {
  session: string;
  seq: number;
  hash: string;
}

/** A task of a session, oldest first.  `last_seq` is its newest event: the state there is the last picture of it. */
export interface TaskLine {
  task_id: string;
  status: string;
  target: string;
  title: string;
  queued_at: string;
  ended_at: string | null;
  last_seq: number;
}

/** One line of a listing: `size` in bytes, `complete` after verification. */
export interface Info {
  seq: number;
  label: string;
  trigger: string;
  at: string;
  size: number;
  base: number | null;
  complete: boolean;
  problem: string;
}

/** Events in order.  `next` is the `after` of the page behind it, null when this one reaches the end of the log; `until` is
 *  the last event that was looked at, whether it is among them or not. */
export interface EventPage {
  events: EventLine[];
  next: number | null;
  inherited_until: number;
  until: number;
}

/** An event; fields that have their default are left out.
 *
 *  A payload of more than `max_payload` bytes is left out too and `payload_bytes` says how long it is.  `blobs` gives the size
 *  of each blob that the payload names (under a key that ends in `_blob`), null when its file is missing. */
export interface EventLine {
  seq: number;
  event_type: string;
  timestamp: string;
  recorded_at?: string | null;
  task_id?: string | null;
  activity_id?: string | null;
  attempt?: number | null;
  actor?: string;
  payload?: unknown;
  parent_event?: number | null;
  schema_version?: number;
  ignorable?: boolean;
  agent_version?: string | null;
  execution_time_ms?: number | null;
  cpu_s?: number | null;
  rss_bytes?: number | null;
  input_tokens?: number | null;
  output_tokens?: number | null;
  cost_usd?: number | null;
  payload_bytes?: number | null;
  blobs?: Record<string, number | null>;
}

/** Cards as they were right after each event asked for, ascending; `card.seq` says which.  Nothing can be done to the past:
 *  every action but `log` gives that as its reason. */
export interface States {
  cards: Card[];
}

/** `expects` are the states that the person saw (`lost` is one of them).  `task_id` is needed for all but rename. */
export interface ControlBody {
  action: "pause" | "resume" | "cancel" | "answer" | "checkpoint" | "rename";
  task_id?: string | null;
  expects?: string[];
  args?: unknown;
}

/** For pause (a second one aborts what is being waited for) and resume. */
export interface NoArgs {
}

/** For cancel. */
export interface CancelArgs {
  reason?: string;
}

/** For answer.  `digest` is that of the `Ask` the person read: what is asked now must be what was shown.
 *
 *  An approved tool call may be given other `arguments`; `always` approves this tool for the rest of the session.  Where calls
 *  may have happened, `activity` names one of them (default: all), and `result` is what it returned. */
export interface AnswerArgs {
  approval_id: string;
  answer: "approved" | "denied";
  digest: string;
  choice?: string | null;
  reason?: string;
  arguments?: Record<string, unknown> | null;
  always?: boolean | null;
  activity?: string | null;
  result?: unknown;
}

/** For checkpoint. */
export interface CheckpointArgs {
  label?: string;
}

/** For rename. */
export interface RenameArgs {
  title: string;
}

/** `accepted` and logged (200), or `pending` (202): the holder has not answered within 5 seconds and will when it can.  A
 *  refusal is a 409 `ControlRefused`. */
export interface Outcome {
  outcome: "accepted" | "pending";
  action: string;
  control_id: string | null;
}

/** `at` null means the newest event; `direction` is what to do differently.  With `isolate` the fork works in a workspace
 *  of its own. */
export interface ForkBody {
  at?: number | null;
  direction?: string;
  title?: string;
  isolate?: boolean;
}

/** The new session. */
export interface Forked {
  session_id: string;
  parent: string;
  at: number;
}

/** What a fork at event `at` means.
 *
 *  `effects` name what was done to the world after it and is not undone, `more` counts those beyond the first hundred.  Inside
 *  `open` activities no fork begins: `nearest` is the last event before where one can, null when there is none.  `ended` says
 *  that the task has ended there already, so that a fork can only be given a new one. */
export interface Aftermath {
  at: number;
  nearest: number | null;
  open: string[];
  ended: boolean;
  effects: string[];
  more: number;
}

/** Two sessions side by side. */
export interface Compared {
  left: Side;
  right: Side;
  comparison: Comparison;
}

/** One of two sessions that are compared. */
export interface Side {
  title: string;
  card: Card;
}

/** `parted_in` and `parted_at` name the last shared event, None when there is none.  `same` counts equal results and
 *  values, `more` the differences beyond those that are listed. */
export interface Comparison {
  parted_in: string | null;
  parted_at: number | null;
  differences: Difference[];
  same: number;
  more: number;
}

/** Something that is not the same on both sides.  None means that it is not there; `what` is result or value. */
export interface Difference {
  what: string;
  name: string;
  left: string | null;
  right: string | null;
}

/** What deleting a session would lose, and who depends on it.  `unclear` are sessions that may be forks of it and cannot be
 *  read.  `problem` says why it cannot be done, if so. */
export interface Loss {
  session_id: string;
  title: string;
  state: string;
  events: number;
  tasks: number;
  needs_you: number;
  cost_usd: number;
  bytes: number;
  forks: string[];
  workspace: string;
  workspace_bytes: number;
  unclear: string[];
  problem: string;
}

/** `events` is how many the person was told of: a session that has grown since is not deleted. */
export interface DeleteBody {
  events: number;
}

/** From the page: each message replaces what it names.  `subscribe` is the whole set of sessions to watch, `list` whether
 *  to follow the list. */
export interface Wanted {
  subscribe?: string[];
  list?: boolean;
}

/** The first message. */
export interface Hello {
  type: "hello";
  api: number;
  version: string;
}

/** The newest picture of a watched session; sent at once after subscribing, then at most ten times a second. */
export interface CardMessage {
  type: "card";
  shown: Shown;
}

/** Rows that are new or have changed, and ids that are gone.  The first one after `list: true` has only counts and
 *  revision. */
export interface ListMessage {
  type: "list";
  changed: Row[];
  removed: string[];
  counts: Counts;
  revision: number;
  filling: boolean;
}

/** To pages that follow the list: what is new, and after a reconnect the last ones again. */
export interface NoticeMessage {
  type: "notices";
  notices: Notice[];
}

/** Something that a person wants to know of while they look elsewhere; `kind` is needs_you, completed, failed or lost.
 *
 *  `id` is that of the event that made it so: who has told it once does not tell it again. */
export interface Notice {
  id: string;
  kind: string;
  session_id: string;
  title: string;
  text: string;
  at: string;
  notebook: string | null;
}

/** A watched session cannot be read, or (`session_id` null) the page's message was not understood. */
export interface ProblemMessage {
  type: "problem";
  session_id: string | null;
  problem: Problem;
}
