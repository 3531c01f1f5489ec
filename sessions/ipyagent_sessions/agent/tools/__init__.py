"""What an agent can do: tools that are declared, built in, or served by MCP.

    declare                        Tool and @tool; how a tool becomes one of pydantic-ai
    offered                        which tools a model gets, and why it does not get the others
    results                        what a model is told of a tool's outcome
    workbench                      what built-in tools may touch
    list_files, search_files       what is in the workspace, and lines that hold a text
    read_file, text                a text file or some of its lines; bytes as text for a model
    write_file, edit_file          a whole file, and one passage of a file
    changing                       how they change a file: tell what it was, then replace it
    run_shell, run_python          a command, and code in the notebook's namespace
    processes, leftovers           what tools start, ended without remainder, also when the engine was killed
    query, tables                  SQL over data frames and files; which of them a query names
    remember, recall               what conversations share
    mcp, mcp_config, mcp_toolset   tools of MCP servers: for a turn, from the settings, one server's

pydantic-ai, DuckDB and pyarrow are imported when a tool is first used.
"""
