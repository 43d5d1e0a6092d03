"""Running the reference decoder on this machine and holding every estimate against what is seen. Needs torch.

Read ``session`` first: its stages, in their order, are the modules of this folder. Nothing here changes a setting of a
device, and nothing here is imported but by the verb.
"""
