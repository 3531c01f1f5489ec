/** Why the server part gave no answer, as one error with fields. */
import { asProblem, isFields } from './guards.js';

/**
 * Why a request gave no answer: `missing`, the server part is not there; `offline`, nothing answered; `refused`, it said no and why;
 * `failed`, something broke.
 */
export type Trouble = 'missing' | 'offline' | 'refused' | 'failed';

export class ApiError extends Error {
  constructor(
    readonly trouble: Trouble,
    message: string,
    readonly hint: string = '',
    readonly status: number = 0
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** The error of an answer that is not 2xx. Ours have a typed body; a 404 without one means that nobody serves these routes. */
export function errorOf(status: number, body: unknown): ApiError {
  if (isFields(body) && typeof body['error'] === 'string') {
    const problem = asProblem(body);
    return new ApiError(status >= 500 ? 'failed' : 'refused', problem.message, problem.hint, status);
  }
  if (status === 404) {
    return new ApiError('missing', 'the server part of ipyagent is not running in this Jupyter server', MISSING_HINT, status);
  }
  if (status === 401 || status === 403) {
    return new ApiError('refused', 'this Jupyter server does not let you do that', 'log in again, or ask who runs it', status);
  }
  return new ApiError('failed', `the Jupyter server answered ${status}`, 'its log has the details', status);
}

export const MISSING_HINT =
  'install ipyagent where the server runs, then restart it; `jupyter server extension list` shows whether it is on';
