"""Lists files in a workspace that tools on the host run or trust on their own, and how each is treated.

`read_only`: an existing file is mounted read-only. `reported`: the agent may change it, as that is part of ordinary
work, and the change is listed as "runs on your machine". A file that does not exist cannot be a mount point, and
creating it would change the workspace: if an agent creates it, it is reported.

Not in the tables, on purpose: code that runs only when you run the project (Makefile, package.json, conftest.py,
setup.py, Dockerfile, and the contents of ignored directories). Changing such code is the agent's work; look at the
diff. Nor do they list the git directory, as the agent gets another one, see `git.private`.
"""

from collections.abc import Mapping
from typing import Literal

from ringfence.frozen import frozen

Treatment = Literal["read_only", "reported"]


@frozen
class AutoExecutedFile:
    """One file or directory, by its path in the workspace; a `*` in the path stands for any characters."""

    path: str
    treatment: Treatment
    because: str
    """The program that runs or trusts it, as a clause."""
    anywhere: bool
    """Whether it is reported in subdirectories as well; only the one at the top can be mounted read-only."""


_READ_ONLY = {
    "ringfence reads it before it builds the fence": ("ringfence.yaml", "ringfence.yml", ".ringfence"),
    "editors run its commands, some of them on the host": (".devcontainer", ".devcontainer.json"),
    "git hooks live in it": (".husky",),
    "git hooks live in it where core.hooksPath says so": (".githooks",),
    "pre-commit's hook runs what it names at each commit": (".pre-commit-config.yaml",),
    "lefthook's hook runs what it names at each commit": (
        "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml", "lefthook.toml", "lefthook.json",
        ".lefthook.toml", ".lefthook.json", ".config/lefthook.yml", ".config/lefthook.yaml", ".config/lefthook.toml",
        ".config/lefthook.json",
    ),
    "lefthook's hook runs what it names, over what lefthook.yml says": (
        "lefthook-local.yml", "lefthook-local.yaml", ".lefthook-local.yml", ".lefthook-local.yaml",
        "lefthook-local.toml", "lefthook-local.json", ".lefthook-local.toml", ".lefthook-local.json",
    ),
    "overcommit's hook runs what it names at each commit": (".overcommit.yml",),
    "GitHub runs it with your repository's secrets": (".github/workflows", ".github/actions"),
    "GitLab runs it with your project's secrets": (".gitlab-ci.yml",),
    "CircleCI runs it with your project's secrets": (".circleci",),
    "Buildkite runs it with your project's secrets": (".buildkite",),
    "Jenkins runs it with its credentials": ("Jenkinsfile",),
    "Azure runs it with your project's secrets": (
        "azure-pipelines.yml", ".azure-pipelines", ".azuredevops", "azure-pipelines.yaml",
    ),
    "Bitbucket runs it with your project's secrets": ("bitbucket-pipelines.yml",),
    "Travis runs it with your project's secrets": (".travis.yml",),
    "Woodpecker runs it with your repository's secrets": (".woodpecker.yml", ".woodpecker.yaml", ".woodpecker"),
    "Drone runs it with your repository's secrets": (".drone.yml", ".drone.yaml", ".drone.star", ".drone.jsonnet"),
    "Gitea runs its workflows with your repository's secrets": (".gitea",),
    "Forgejo runs its workflows with your repository's secrets": (".forgejo",),
    "AppVeyor runs it with your project's secrets": ("appveyor.yml", ".appveyor.yml"),
    "bazel's launcher runs it in bazel's place": ("tools/bazel",),
    "pip takes its indexes from it": ("pip.conf",),
    "uploads take their address from it": (".pypirc",),
    "it holds credentials": (".netrc",),
    "Copilot runs the commands it names": (".github/hooks",),
    "repo runs its own program and hooks from it": (".repo",),
    "prek's hook runs what it names at each commit": ("prek.toml",),
    "lefthook's hook runs the scripts in it": (".lefthook", ".lefthook-local"),
    "overcommit's hook runs the plugins in it": (".git-hooks",),
    "CaptainHook's hook runs what it names at each commit": ("captainhook.json",),
    "GrumPHP's hook runs what it names at each commit": ("grumphp.yml", "grumphp.yaml"),
    "hk's hook runs what it names at each commit": ("hk.pkl",),
    "rusty-hook's hook runs what it names at each commit": (".rusty-hook.toml",),
    "gitlint's hook loads the rules it names at each commit": (".gitlint",),
    "Cirrus runs it with your repository's secrets": (".cirrus.yml", ".cirrus.yaml", ".cirrus.star"),
    "CodeBuild runs it with your project's roles": ("buildspec.yml", "buildspec.yaml"),
    "CodeDeploy runs the hooks it names": ("appspec.yml", "appspec.yaml"),
    "Cloud Build runs it with your project's roles": ("cloudbuild.yaml", "cloudbuild.yml", "cloudbuild.json"),
    "Codemagic runs it with your project's secrets": ("codemagic.yaml",),
    "Bitrise runs it with your project's secrets": ("bitrise.yml", "bitrise.yaml"),
    "Semaphore runs it with your project's secrets": (".semaphore",),
    "TeamCity runs it with your project's secrets": (".teamcity",),
    "Bamboo runs it with your project's secrets": ("bamboo-specs",),
    "sourcehut runs it with your secrets": (".build.yml", ".builds"),
    "Pipelines as Code runs it with your cluster's secrets": (".tekton",),
    "Harness runs it with your project's secrets": (".harness",),
    "Vela runs it with your repository's secrets": (".vela.yml", ".vela.yaml"),
    "Taskcluster runs it with your project's secrets": (".taskcluster.yml",),
    "Packit runs the commands it names and uses it to release": (
        ".packit.yaml", ".packit.yml", "packit.yaml", "packit.yml",
    ),
    "Zuul runs the jobs it names with your project's secrets": (".zuul.yaml", "zuul.yaml", ".zuul.d", "zuul.d"),
    "Buddy runs it with your project's secrets": (".buddy", "buddy.yml"),
    "OneDev runs it with your project's secrets": (".onedev-buildspec.yml",),
    "Mergify merges changes by it": (".mergify.yml", ".mergify", ".github/mergify.yml"),
    "the settings app changes your repository by it": (".github/settings.yml",),
    "Gitpod runs its commands when it opens the project": (".gitpod.yml", ".gitpod.yaml"),
    "Replit runs the commands it names": (".replit",),
    "Firebase Studio runs the hooks it names": (".idx",),
    "CodeSandbox runs the tasks it names": (".codesandbox",),
    "workspaces of Che and odo run the commands it names": ("devfile.yaml", ".devfile.yaml"),
    "Composer takes credentials from it": ("auth.json",),
}  # fmt: skip
"""Mounted read-only at the top of the workspace; in a subdirectory they are neither mounted nor reported."""
_READ_ONLY_OR_REPORTED_BELOW = {
    "Claude Code runs hooks and grants permissions from it": (".claude",),
    "coding agents start the servers it names": (".mcp.json",),
    "Cursor starts the servers and follows the rules in it": (".cursor",),
    "Codex takes its permissions from it": (".codex",),
    "Gemini CLI takes its permissions from it": (".gemini",),
    "Roo Code starts the servers and follows the rules in it": (".roo",),
    "Kiro runs hooks and starts the servers it names": (".kiro",),
    "Continue starts the servers and follows the rules in it": (".continue",),
    "Windsurf follows the rules and workflows in it": (".windsurf",),
    "opencode starts servers and takes permissions from it": ("opencode.json", "opencode.jsonc"),
    "opencode runs the plugins in it": (".opencode",),
    "aider runs the commands it names": (".aider.conf.yml",),
    "VS Code runs tasks and interpreters it names": (".vscode",),
    "JetBrains editors run what it configures": (".idea",),
    "Zed runs the tasks and servers it names": (".zed",),
    "Helix starts the language servers its languages.toml names": (".helix",),
    "Neovim runs it on start": (".nvim.lua",),
    "Neovim runs it on start where exrc is set": (".nvimrc",),
    "Neovim's lazy.nvim runs it on start": (".lazy.lua",),
    "Vim runs it on start where exrc is set": (".vimrc", "_vimrc", "_exrc", ".gvimrc"),
    "vi runs it on start": (".exrc",),
    "Emacs follows it for files beside it": (".dir-locals.el", ".dir-locals-2.el"),
    "R runs it on start": (".Rprofile",),
    "Python's debugger runs it": (".pdbrc",),
    "Ruby's irb runs it on start": (".irbrc", "_irbrc", "irb.rc"),
    "Ruby's pry runs it on start": (".pryrc",),
    "Elixir's iex runs it on start": (".iex.exs",),
    "GHCi runs it on start": (".ghci",),
    "OCaml's toplevel runs it on start": (".ocamlinit",),
    "direnv runs it when you enter the directory": (".envrc",),
    "mise runs hooks and sets the environment from it": (
        "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", ".config/mise.toml", ".config/mise",
        ".mise/config.toml", "mise/config.toml",
    ),
    "Mercurial runs hooks and extensions that it names": (".hg",),
    "Jujutsu runs programs that it names, and the git that it leads to": (".jj",),
    "npm takes registries and scripts' shell from it": (".npmrc",),
    "yarn takes its own program from it": (".yarnrc",),
    "yarn takes its own program and plugins from it": (".yarnrc.yml",),
    "yarn runs what is in it at each command": (".yarn/plugins",),
    "yarn is run from it": (".yarn/releases",),
    "bun takes registries and scripts to run first from it": ("bunfig.toml",),
    "pnpm runs it at each install": (".pnpmfile.cjs", ".pnpmfile.mjs"),
    "cargo takes linkers, wrappers and runners from it": (".cargo",),
    "bazel takes options, programs and servers to trust from it": (".bazelrc",),
    "gdb runs it": (".gdbinit",),
    "lldb runs it": (".lldbinit",),
    "Qwen Code starts the servers and takes permissions from it": (".qwen",),
    "Amazon Q starts the servers and runs the hooks in it": (".amazonq",),
    "Augment runs the commands and follows the rules in it": (".augment",),
    "Trae starts the servers and follows the rules in it": (".trae",),
    "Crush starts the servers it names": ("crush.json", ".crush.json"),
    "Junie starts the servers and follows the guidelines in it": (".junie",),
    "Droid runs hooks and starts the servers it names": (".factory",),
    "OpenHands runs the set-up script and hooks in it": (".openhands",),
    "pi runs the extensions in it": (".pi",),
    "Kilo Code starts the servers and follows the rules in it": (".kilocode",),
    "Roo and Kilo Code take modes and permissions from it": (".kilocodemodes", ".roomodes"),
    "Qoder starts the servers and follows the rules in it": (".qoder",),
    "CodeBuddy runs hooks and grants permissions from it": (".codebuddy",),
    "Rovo Dev takes servers and permissions from it": (".rovodev",),
    "Mistral Vibe takes servers and permissions from it": (".vibe",),
    "Tabnine starts the servers it names": (".tabnine",),
    "Vim's plugins for local settings run it": (".lvimrc", ".local.vimrc"),
    "coc.nvim starts the language servers its coc-settings.json names": (".vim",),
    "YouCompleteMe runs it": (".ycm_extra_conf.py",),
    "Visual Studio runs the tasks it names": (".vs",),
    "Fleet runs the commands it names": (".fleet",),
    "Kate starts the language servers and tools it names": (".kateproject",),
    "Haskell's language server runs the program it names": ("hie.yaml",),
    "OCaml's Merlin runs the preprocessors it names": (".merlin",),
    "clojure-lsp runs the commands it names": (".lsp",),
    "editors start the build servers it names": (".bsp",),
    "rust-analyzer runs the commands it names": ("rust-analyzer.toml", ".rust-analyzer.toml"),
    "Lua's language server runs the plugin it names": (".luarc.json", ".luarc.jsonc"),
    "Swift's language server takes tools from it": (".sourcekit-lsp",),
    "Solargraph loads the plugins it names": (".solargraph.yml",),
    "latexmk runs it, and editors run latexmk as you save": (".latexmkrc", "latexmkrc"),
    "Python's pdb++ runs it": (".pdbrc.py",),
    "IPython or Jupyter runs it on start": (
        "ipython_config.py", "jupyter_config.py", "jupyter_notebook_config.py", "jupyter_server_config.py",
    ),
    "Ruby's debuggers run it on start": (".byebugrc", ".rdbgrc", ".rdbgrc.rb"),
    "Perl's debugger runs it": (".perldb",),
    "Perl's prove takes modules to load from it": (".proverc",),
    "PHP's PsySH runs it on start": (".psysh.php",),
    "R sets its environment from it on start": (".Renviron",),
    "Octave runs it on start": (".octaverc",),
    "MATLAB runs it on start": ("startup.m",),
    "gnuplot runs it on start": (".gnuplot",),
    "Erlang runs it on start": (".erlang",),
    "ghcid takes its command from it": (".ghcid",),
    "rvm runs it when you enter the directory": (".rvmrc",),
    "autoenv runs it when you enter or leave the directory": (
        ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", ".env.leave",
    ),
    "shadowenv runs it when you enter the directory": (".shadowenv.d",),
    "flox runs hooks from it when it is activated": (".flox",),
    "Hermit sets the environment from it": ("bin/hermit.hcl",),
    "pkgx sets the environment from it": (".pkgx.yml", ".pkgx.yaml"),
    "mise, by its old name, runs hooks from it": (".rtx.toml", "rtx.toml"),
    "proto loads the plugins it names": (".prototools",),
    "darcs runs the commands its prefs name": ("_darcs",),
    "Sapling runs hooks and extensions that it names": (".sl",),
    "Bazaar takes commands and addresses from it": (".bzr",),
    "Pijul runs hooks that it names": (".pijul",),
    "Fossil takes commands from its settings": (".fslckout", "_FOSSIL_", ".fossil-settings"),
    "Perforce takes its server and programs from it": (".p4config",),
    "Maven loads extensions and options from it at each command": (".mvn",),
    "sbt takes options of its JVM from it": (".sbtopts", ".jvmopts"),
    "Bundler takes paths and sources from it": (".bundle",),
    "Node loads it whenever Yarn runs a command": (".pnp.cjs", ".pnp.loader.mjs"),
    "editors run the tools in it": (".yarn/sdks",),
    "bazelisk takes the bazel that it runs from it": (".bazeliskrc",),
    "buck takes tools from it": (".buckconfig", ".buckconfig.local"),
    "pants takes options and plugins from it": (".pants.rc",),
    "Ansible loads the plugins it names at each command": ("ansible.cfg",),
    "Arcanist loads the libraries it names": (".arcconfig",),
}  # fmt: skip
"""Mounted read-only at the top of the workspace, and reported in subdirectories."""
_REPORTED = {
    "Copilot follows it unasked, on the host, too": (".github/copilot-instructions.md", ".github/instructions"),
    "editors follow it; it runs nothing, but decides what is written": (".editorconfig",),
    "Copilot follows it, on the host, too": (".github/agents", ".github/chatmodes", ".github/prompts", ".github/skills"),
    "git-review sends your work to the address in it": (".gitreview",),
    "it decides who has to review a change": (
        "CODEOWNERS", ".github/CODEOWNERS", ".gitlab/CODEOWNERS", "docs/CODEOWNERS",
    ),
    "a bot proposes changes by it": (
        ".github/dependabot.yml", ".github/dependabot.yaml", "renovate.json", "renovate.json5", ".github/renovate.json",
        ".github/renovate.json5", ".renovaterc*",
    ),
    "Read the Docs runs the commands it names": (".readthedocs.yaml", ".readthedocs.yml"),
    "the service that publishes your project runs the commands it names": (
        "netlify.toml", "vercel.json", "amplify.yml", "render.yaml", "heroku.yml", "railway.toml",
    ),
}  # fmt: skip
"""Reported at the top of the workspace."""
_REPORTED_ANYWHERE = {
    "Claude Code follows it unasked, on the host, too": ("CLAUDE.md", "CLAUDE.local.md"),
    "coding agents follow it unasked, on the host, too": ("AGENTS.md",),
    "Codex follows it unasked, on the host, too": ("AGENTS.override.md",),
    "coding agents take skills from it, on the host, too": (".agents",),
    "Cursor follows it unasked, on the host, too": (".cursorrules",),
    "Windsurf follows it unasked, on the host, too": (".windsurfrules",),
    "Gemini CLI follows it unasked, on the host, too": ("GEMINI.md",),
    "Cline follows it unasked, on the host, too": (".clinerules",),
    "VS Code takes tasks and settings from it": ("*.code-workspace",),
    "many tools load it into their environment": (".env",),
    "version managers pick programs by it": (
        ".tool-versions", ".ruby-version", ".ruby-gemset", ".node-version", ".nvmrc", ".python-version", ".java-version",
        ".go-version", ".sdkmanrc", ".terraform-version",
    ),
    "it sends files through filters of your git": (".gitattributes",),
    "git fetches from the addresses in it": (".gitmodules",),
    "rustup picks the compiler by it, which may be a path": ("rust-toolchain.toml", "rust-toolchain"),
    "Qwen Code follows it unasked, on the host, too": ("QWEN.md",),
    "Warp follows it unasked, on the host, too": ("WARP.md",),
    "Crush follows it unasked, on the host, too": ("CRUSH.md",),
    "Goose follows it unasked, on the host, too": (".goosehints",),
    "Augment follows it unasked, on the host, too": (".augment-guidelines",),
    "Zed's agent follows it unasked, on the host, too": (".rules",),
    "Sublime Text takes build systems and settings from it": ("*.sublime-project",),
    "RStudio takes build scripts and settings from it": ("*.Rproj",),
    "clangd takes the compiler and its options from it": (".clangd",),
    "R loads the objects in it on start": (".RData",),
    "gdb loads it with the program of that name": ("*-gdb.py", "*-gdb.gdb", "*-gdb.scm"),
    "git-lfs takes addresses from it": (".lfsconfig",),
    "husky's hook runs what it names at each commit": (".huskyrc*",),
    "simple-git-hooks takes the commands of hooks from it": ("*simple-git-hooks.*",),
    "lint-staged runs what it names where a hook calls it": (".lintstagedrc*", "lint-staged.config.*"),
    "nano-staged runs what it names where a hook calls it": ("*nano-staged*",),
    "commitlint runs it where a hook calls it": ("commitlint.config.*", ".commitlintrc*"),
    "pnpm reads from it which packages may run scripts": ("pnpm-workspace.yaml",),
    "bazelisk picks bazel by it": (".bazelversion",),
    "gradlew and editors run the Gradle version that it names": ("gradle/wrapper",),
    "it names the indexes that packages come from": ("uv.toml", "poetry.toml", "pdm.toml", ".pdm.toml"),
    "sops decides from it who can decrypt secrets": (".sops.yaml",),
    "a web server takes settings, and code to load first, from it": (".htaccess", ".user.ini"),
}  # fmt: skip
"""Reported in the whole workspace."""


def _rows(
    paths: Mapping[str, tuple[str, ...]], treatment: Treatment, *, anywhere: bool = False
) -> tuple[AutoExecutedFile, ...]:
    return tuple(
        AutoExecutedFile(path, treatment, because, anywhere)
        for because, found in paths.items()
        for path in found
    )


AUTO_EXECUTED_FILES = (
    *_rows(_READ_ONLY, "read_only"),
    *_rows(_READ_ONLY_OR_REPORTED_BELOW, "read_only", anywhere=True),
    *_rows(_REPORTED, "reported"),
    *_rows(_REPORTED_ANYWHERE, "reported", anywhere=True),
)
"""All auto-executed files, with their treatment."""
