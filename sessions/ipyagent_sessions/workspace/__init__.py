"""A folder that no path leads out of: for the tools of agents, for checked sections, for roll backs.

workspace   reads, writes, removes and walks; what is protected is as if outside
folder      one open folder, in which no name is followed when it is a link
names       the text of a path, judged before any file system sees it
protected   what may not be touched although it lies inside
git         git in a folder
"""
