# bash completion for tulle. The program itself knows what may come next: `tulle complete -- WORDS...` prints it.

# _tulle_files EXTENSION: files of that kind, or all, and the folders on the way to them.
_tulle_files() {
  compopt -o filenames 2>/dev/null
  if [[ -n $1 ]]; then
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -X "!*.$1" -- "$cur"; compgen -d -- "$cur")
  else
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur")
  fi
}

# _tulle_program INDEX: another program's command line begins at that word, with completions of its own.
_tulle_program() {
  if declare -F _comp_command_offset >/dev/null; then
    _comp_command_offset "$1"
  elif declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif ((COMP_CWORD == $1)); then
    mapfile -t COMPREPLY < <(compgen -c -- "$cur")
  else
    _tulle_files ""
  fi
}

_tulle() {
  local cur=${COMP_WORDS[COMP_CWORD]} line
  [[ $cur != = ]] || cur=
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      ":files") _tulle_files "" ;;
      ":files "*) _tulle_files "${line#:files }" ;;
      ":folders") compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
      ":nospace") compopt -o nospace 2>/dev/null ;;
      ":program "*) _tulle_program "${line#:program }"; return ;;
      *) COMPREPLY+=("$line") ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
} && complete -F _tulle tulle
