/** The kernel of a widget is the one that has its definitions: it goes on by itself when it is asked. */
import type { Api } from '../api.js';
import type { Kernels, Tell, Where } from '../desk.js';
import type { ResumeDoor } from '../view/buttons.js';

export class OwnKernel implements Kernels {
  constructor(private readonly api: Pick<Api, 'goOn'>) {}

  door(): ResumeDoor {
    return { why: '', hint: 'continue in this kernel; what is done is not done again' };
  }

  resume(where: Where, tell: Tell): Promise<void> {
    tell('asking the kernel to go on…');
    return this.api.goOn(where.sessionId, 'resume');
  }

  rerun(where: Where, tell: Tell): Promise<void> {
    tell('asking the kernel to go on…');
    return this.api.goOn(where.sessionId, 'rerun');
  }
}
