"""How weights are stored: layouts of one matrix, schemes that give each matrix of a model its layout.

:mod:`.layouts` and :mod:`.packed` hold the layouts, :mod:`.blocks` those of llama.cpp, :mod:`.mixes` its mixes.
:mod:`.named` reads ``--weights``, :mod:`.config` a config's ``quantization_config``.
"""
