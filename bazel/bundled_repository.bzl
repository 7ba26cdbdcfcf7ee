"""A repository whose files are a folder of another repository: `root` names the WORKSPACE file in that folder."""

def _bundled_repository(ctx):
    root = ctx.path(ctx.attr.root).dirname
    for entry in root.readdir():
        ctx.symlink(entry, entry.basename)

bundled_repository = repository_rule(_bundled_repository, attrs = {"root": attr.label(mandatory = True)})
