"""What an agent can do: tools that are declared, built in, or served by MCP.

    declare     Tool and @tool; how a tool becomes one of pydantic-ai
    workbench   what built-in tools may touch
    offered     which tools a model gets, and why it does not get the others

Each built-in tool has a file of its own.  pydantic-ai, DuckDB and pyarrow are imported when a tool is first used.
"""
