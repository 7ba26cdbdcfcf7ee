"""Build settings of our own: a string with a fixed set of values, set by `--//bazel:NAME=VALUE`."""

def _choice(ctx):
    if ctx.build_setting_value not in ctx.attr.values:
        fail("%s can be %s, not %r" % (ctx.label, " or ".join(ctx.attr.values), ctx.build_setting_value))
    return []

_choice_flag = rule(
    _choice,
    attrs = {"values": attr.string_list(mandatory = True)},
    build_setting = config.string(flag = True),
)

def choice(name, values):
    """A flag //bazel:<name> whose default is the first value, and a config_setting <name>_is_<value> for each."""
    _choice_flag(
        name = name,
        values = values,
        build_setting_default = values[0],
        visibility = ["//visibility:public"],
    )
    for value in values:
        native.config_setting(
            name = "%s_is_%s" % (name, value),
            flag_values = {":" + name: value},
            visibility = ["//visibility:public"],
        )
