/** What a widget draws where no front end's sanitiser is at hand: pictures as they are, everything else as text. */
import type { Draw } from '../talk/pieces.js';

export const plainDraw: Draw = {
  draw: (host, mime, data) => {
    if (mime === 'image/png' || mime === 'image/jpeg') {
      const picture = document.createElement('img');
      picture.src = `data:${mime};base64,${data.replace(/\s/g, '')}`;
      host.replaceChildren(picture);
    } else {
      const text = document.createElement('div');
      text.className = 'ipa-plain';
      text.textContent = data;
      host.replaceChildren(text);
    }
    return Promise.resolve();
  },
  forget: host => host.replaceChildren()
};
