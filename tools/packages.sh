# Says which Debian packages a purpose needs, and installs them. ./dev sources this file; the list is
# cmake/debian-packages.txt.

readonly package_list=cmake/debian-packages.txt
readonly newest_release=trixie

os_release=/etc/os-release

distribution() { (. "$os_release" 2>/dev/null && echo "${PRETTY_NAME:-this system}") || echo "this system"; }
release() { (. "$os_release" 2>/dev/null && echo "${VERSION_CODENAME:-}") || true; }

is_root() { [[ $EUID -eq 0 ]]; }
is_known_release() { [[ $(release) == bookworm || $(release) == trixie ]]; }

# wanted_packages PURPOSE...: prints one package a line, as apt-get takes it, for this machine's release.
wanted_packages() {
  local counted=$newest_release pins=no
  if is_known_release; then
    counted=$(release) pins=yes
  fi
  awk -v purposes=" $* " -v counted="$counted" -v pins="$pins" '
    /^(#|$)/ { next }
    /^\[/ { wanted = index(purposes, " " substr($1, 2, length($1) - 2) " ") > 0; next }
    !wanted { next }
    NF > 1 { here = 0; for (i = 2; i <= NF; ++i) here = here || $i == counted; if (!here) next }
    { name = $1; if (pins == "no") sub(/=.*/, "", name); if (!seen[name]++) print name }
  ' "$package_list"
}

missing_packages() {  # PURPOSE...
  local installed package
  installed=$(dpkg-query -W -f='${Status} ${Package}\n' | sed -n 's/^install ok installed //p')
  # A package that another one provides counts as installed, too (today pkgconf provides pkg-config).
  installed+=$'\n'$(dpkg-query -W -f='${Status}\t${Provides}\n' | sed -n 's/^install ok installed\t//p' |
    sed 's/ ([^)]*)//g; s/, */\n/g')
  for package in $(wanted_packages "$@"); do
    grep -qxF "${package%%=*}" <<<"$installed" || printf '%s\n' "$package"
  done
}

# Prints the first error that apt-get named in this file, on one line.
apt_complaint() {
  local line
  line=$(grep -m 1 -E '^E: ' "$1" || tail -1 "$1")
  echo "${line#E: }"
}

has_package_index() { compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null; }

# install_packages PURPOSE...: installs the missing packages, or says in one line what has to be done.
install_packages() {
  local purpose purposes
  purposes=$(sed -n 's/^\[\(.*\)\]$/\1/p' "$package_list")
  purposes=${purposes//$'\n'/ }
  for purpose in "$@"; do
    [[ " $purposes " == *" $purpose "* ]] || misuse "no purpose \"$purpose\"; the purposes are: $purposes"
  done
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    check_tools "$@"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if ! is_root; then
    # Pins are left out, since they name the newest version of this release.
    local update=""
    has_package_index || update="sudo apt-get update && "
    fail "packages are missing; run: ${update}sudo apt-get install --no-install-recommends ${missing[*]%%=*}"
  fi
  is_known_release || note "$(distribution) is not Debian 12 or 13; its packages are taken by Debian's names"
  note "installing ${#missing[@]} packages: ${missing[*]}"
  need_space /var/cache/apt $((40 * ${#missing[@]})) "installing packages"
  export DEBIAN_FRONTEND=noninteractive
  local began=$SECONDS log install=(apt-get install --yes --quiet --no-install-recommends "${missing[@]}")
  log=$(mktemp)
  trap "rm -f '$log'" EXIT
  # The package index may be missing or old, so a first failure is answered with a fresh index.
  if ! has_package_index || ! "${install[@]}" </dev/null >"$log" 2>&1; then
    if ! apt-get update --quiet -o APT::Update::Error-Mode=any </dev/null >"$log" 2>&1; then
      fail "apt-get cannot read its package mirrors ($(apt_complaint "$log")); connect this machine, or install these" \
        "by hand: ${missing[*]%%=*}"
    fi
    if ! "${install[@]}" </dev/null >"$log" 2>&1; then
      fail "apt-get cannot install what is missing ($(apt_complaint "$log")); it is: ${missing[*]}"
    fi
  fi
  note "installed them in $((SECONDS - began)) s"
  rm -f "$log"
}

# Without apt the tools must be there already, since their packages have other names elsewhere.
check_tools() {
  local tool absent=() purpose
  for tool in cmake ninja pkg-config c++; do command -v "$tool" >/dev/null || absent+=("$tool"); done
  for tool in libisal fmt libibverbs librdmacm libibumad; do
    ! command -v pkg-config >/dev/null || pkg-config --exists "$tool" || absent+=("$tool's headers")
  done
  for purpose in "$@"; do
    case $purpose in
      demo) for tool in ib_write_bw iperf3 python3; do command -v "$tool" >/dev/null || absent+=("$tool"); done ;;
      fresh) command -v mmdebstrap >/dev/null || absent+=(mmdebstrap) ;;
    esac
  done
  [[ ${#absent[@]} -eq 0 ]] ||
    fail "$(distribution) has no apt-get; install these yourself ($package_list has Debian's names):" \
      "$(printf '%s, ' "${absent[@]}" | sed 's/, $//')"
}

# need_space FOLDER MEBIBYTES WHAT: fails if FOLDER has less free space than WHAT needs.
need_space() {
  local free
  free=$(df --output=avail -B 1M "$1" 2>/dev/null | tail -1) || return 0
  [[ -z $free || $free -ge $2 ]] || fail "$(readlink -f "$1") has ${free// /} MiB free, and $3 needs $2; make room there"
}
