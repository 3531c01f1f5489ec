/** Cells of the notebooks that the browser tests run. */

/** Workflows, and `show`: what the magic puts into the cell for a task. */
export const SETUP = `
%load_ext ipyagent
import asyncio, time
from ipyagent import workflow, activity

@activity(effect="none")
async def look(n, pause=0.2):
    await asyncio.sleep(pause)
    return n

@activity(effect="none")
async def gather_up(n):
    await asyncio.sleep(0.05)
    return n

@workflow(default_effect="none")
async def audit(ctx, n: int = 40, pause: float = 0.2):
    ctx.expect(n + 6)
    async with ctx.stage("scan"):
        await ctx.gather(*[ctx.run(gather_up, i, key=i) for i in range(6)], limit=3)
    async with ctx.stage("asyncio, email, json"):
        for i in range(n):
            await ctx.run(look, i, pause, key=f"m{i}")
    return n

@workflow(default_effect="none")
async def tidy(ctx):
    await ctx.run(gather_up, 1, key="a")
    if await ctx.approve("Delete the build folders?", details={"paths": ["build/", "dist/"]}):
        await ctx.run(gather_up, 2, key="b")
        return "deleted"
    return "kept"

def show(handle, saved="a task"):
    from IPython.display import display
    key = {"session_id": handle.session.id, "task_id": handle.task_id}
    display({"application/vnd.ipyagent.task+json": key, "text/plain": saved}, raw=True)
    return None

def start(line):
    return get_ipython().run_line_magic("agent", f"run {line} --bg")
`;

/** Starts a task, shows its card, and keeps the kernel busy for as long as anybody looks. */
export const busy = (line: string): string => `handle = start(${JSON.stringify(line)})\nshow(handle)\nfor _ in range(6000): time.sleep(0.1)`;

/** The same with the kernel free. */
export const free = (line: string): string => `handle = start(${JSON.stringify(line)})\nshow(handle)`;

/** A task whose every text tries to be more than text, and an output that was written by hand. */
export const hostile = (): string => `
bad = "<script>window.hacked=1</script><img src=x onerror='window.hacked=2'>\\u202egpj.exe \\x1b[31mred javascript:alert(3)"

@workflow(default_effect="none")
async def evil(ctx):
    async with ctx.stage(bad):
        await ctx.run(gather_up, 1, key="a")
        await ctx.approve(bad, details={"html": bad, "long": "x" * 1000})

from ipyagent_sessions.run.launch import launch, Origin
handle = get_ipython().run_line_magic("agent", "run evil --bg --title '<script>window.hacked=1</script>'")
show(handle, bad)
from IPython.display import display
display({"application/vnd.ipyagent.task+json": {"session_id": "../../etc", "task_id": bad, "title": bad}, "text/plain": bad}, raw=True)
`;
