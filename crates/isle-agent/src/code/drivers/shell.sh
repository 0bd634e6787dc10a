# Isle's shell interpreter: runs inside the sandbox, receives from the agent on descriptor 250 and sends on
# descriptor 251, a pipe: only bytes can be sent to the agent.
# Calls come as lines of words for `printf %b`; each is evaluated in this one shell, so variables,
# functions and the working directory stay. An interrupt unwinds the call and leaves the shell.
exec 250<&3 251>&4 3<&- 4>&-
__isle_unwind() {
  case " ${FUNCNAME[*]} " in *" __isle_go "*) return 2 ;; esac
  return 0
}
__isle_go() { local __isle_text=$1; shift; eval "$__isle_text" </dev/null 250<&- 251>&-; }
__isle_call() {
  __isle_interrupted=
  trap '__isle_interrupted=1; set -T; shopt -s extdebug; trap __isle_unwind DEBUG' INT
  __isle_go "$@"
  __isle_status=$?
  if [ -n "$__isle_interrupted" ]; then
    trap - DEBUG
    shopt -u extdebug
    set +T
    __isle_status=130
  fi
  trap : INT
}
trap : INT
while IFS= read -r __isle_line <&250; do
  eval "__isle_words=($__isle_line)"
  __isle_decoded=()
  for __isle_word in "${__isle_words[@]}"; do
    printf -v __isle_word '%b.' "$__isle_word"
    __isle_decoded+=("${__isle_word%.}")
  done
  set -- "${__isle_decoded[@]}"
  __isle_directory=$1
  __isle_count=$2
  shift 2
  while [ "$__isle_count" -gt 0 ]; do
    export "$1"
    shift
    __isle_count=$((__isle_count - 1))
  done
  if [ -n "$__isle_directory" ] && ! cd -- "$__isle_directory" 2>/dev/null; then
    printf 'E\0\0\0\0012' >&251
    continue
  fi
  __isle_call "$@"
  __isle_text=$__isle_status
  case ${#__isle_text} in
    1) printf 'D\0\0\0\001%s' "$__isle_text" >&251 ;;
    2) printf 'D\0\0\0\002%s' "$__isle_text" >&251 ;;
    *) printf 'D\0\0\0\003%s' "$__isle_text" >&251 ;;
  esac
done
