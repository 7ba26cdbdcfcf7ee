"""CcInfo under another name, because a file cannot define a name that it also reads."""

BUILTIN_CC_INFO = CcInfo
