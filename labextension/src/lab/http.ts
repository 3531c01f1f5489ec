/** The routes and the live stream over the page's own connection to its Jupyter Server. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { Carrier } from '../api.js';
import { ApiError } from '../api-errors.js';

const ROOT = 'ipyagent/api';

export function carrierOf(settings: ServerConnection.ISettings): Carrier {
  return async (path, init) => {
    try {
      return await ServerConnection.makeRequest(`${URLExt.join(settings.baseUrl, ROOT)}/${path}`, init, settings);
    } catch {
      throw new ApiError('offline', 'the Jupyter server does not answer', 'it is tried again by itself');
    }
  };
}

/** A new socket to the live stream; its address has the token where cookies do not do. */
export function liveSocket(settings: ServerConnection.ISettings): WebSocket {
  const url = URLExt.join(settings.wsUrl, ROOT, 'live');
  return new settings.WebSocket(settings.appendToken && settings.token ? `${url}?token=${encodeURIComponent(settings.token)}` : url);
}
