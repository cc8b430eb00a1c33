# shellcheck shell=sh disable=SC2034 # check.sh reads what is set here
# nvcc_options.sh: the options of nvcc that ./flash check takes, so that the command that compiles a program for a GPU
# checks it, too. Those that choose code, speed or warnings of the GPU's compiler are read and change nothing here.
# Use: . nvcc_options.sh, behind the functions refuse and value; nvcc_option "$@" for each word; then pass, link, …
pass=          # for the compiler, quoted
link=          # for the linker, quoted
standard=c++17 # as nvcc's
target=        # -arch: 800 for sm_80

quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
# Is it the folder of an installed CUDA's headers? They are never used: their functions are the GPU's.
of_cuda() { [ -e "$1/cuda_runtime.h" ] && [ -e "$1/driver_types.h" ]; }
# folder OPTION PATH: for the preprocessor.
folder() { of_cuda "$2" || pass="$pass $1 $(quoted "$2")"; }
# A path of folders, as CPATH is, without those.
without_cuda() {
  rest=$1:
  while [ -n "$rest" ]; do
    of_cuda "${rest%%:*}" || printf '%s:' "${rest%%:*}"
    rest=${rest#*:}
  done | sed 's/:$//'
}

# host OPTION: one that nvcc hands to the host's compiler, -Xcompiler OPTION,OPTION.
host() {
  rest=$1,
  while [ -n "$rest" ]; do
    option=${rest%%,*} rest=${rest#*,}
    case $option in
      -fopenmp | -pthread) pass="$pass $option" link="$link $option" ;;
      -D?* | -U?*) pass="$pass $(quoted "$option")" ;;
      -I?*) folder -I "${option#-I}" ;;
      -std=*) standard=${option#-std=} ;;
      '' | -[OWwgm]* | -f* | -pedantic | -ansi | -pipe) ;;
      *) refuse "flag '-Xcompiler $option' is unknown; expected one of -D, -I, -std, -f, -m, -O, -W; leave it out" ;;
    esac
  done
}


# target_of TEXT: the last architecture that -arch or -gencode names; native, all and the like name none.
target_of() {
  number=$(printf %s "$1" | sed -n 's/.*\(sm\|compute\)_\([0-9][0-9]*\).*/\2/p')
  [ -z "$number" ] || target=${number}0
}

# nvcc_option WORD…: takes the option that the words begin with; $words: how many it was, 0: nvcc has none of that name.
nvcc_option() {
  words=1
  case $1 in
    -D | -U | -I | -isystem | -include | -L | -l | -std | --std | -Xcompiler | --compiler-options | -arch | -gencode | \
      --gpu-architecture | --generate-code | -code | --gpu-code | -maxrregcount | --maxrregcount | -Xptxas | \
      --ptxas-options | -ccbin | --compiler-bindir | -Xcudafe | -diag-suppress | --diag-suppress)
      value "$1" 'what nvcc takes' ${2+"$2"}
      words=2
      ;;
  esac
  case $1 in
    -D | -U | -include) pass="$pass $1 $(quoted "$2")" ;;
    -I | -isystem) folder "$1" "$2" ;;
    -L | -l) link="$link $1$(quoted "$2")" ;;
    -std | --std) standard=$2 ;;
    -Xcompiler | --compiler-options) host "$2" ;;
    -arch | --gpu-architecture | -gencode | --generate-code) target_of "$2" ;;
    -code | --gpu-code | -maxrregcount | --maxrregcount | -Xptxas | --ptxas-options | -ccbin | --compiler-bindir | \
      -Xcudafe | -diag-suppress | --diag-suppress) ;;

    -D?* | -U?*) pass="$pass $(quoted "$1")" ;;
    -I?*) folder -I "${1#-I}" ;;
    -std=* | --std=*) standard=${1#*=} ;;
    -Xcompiler=* | --compiler-options=*) host "${1#*=}" ;;
    -fopenmp | -pthread) host "$1" ;;
    -lineinfo) ;;
    -lcuda | -lcudart | -lcudart_static | -lcudadevrt | -lcublas | -lcublasLt | -lcurand | -lcufft | -lnvToolsExt) ;;
    -L?* | -l?*) link="$link $(quoted "$1")" ;;
    -arch=* | --gpu-architecture=* | -gencode=* | --generate-code=*) target_of "$1" ;;
    -code=* | --gpu-code=* | -maxrregcount=* | --maxrregcount=* | -Xptxas=* | --ptxas-options=* | -ccbin=* | \
      --compiler-bindir=* | -Xcudafe=* | -diag-suppress=* | --diag-suppress=* | -O | -O[0-3] | --optimize=* | -g | \
      -G | --debug | --device-debug | --generate-line-info | -w | -W* | -m64 | -rdc=* | \
      --relocatable-device-code=* | -use_fast_math | --use_fast_math | -fmad=* | --fmad=* | -ftz=* | -prec-div=* | \
      -prec-sqrt=* | --expt-* | -expt-* | --extended-lambda | -extended-lambda | -allow-unsupported-compiler | \
      --allow-unsupported-compiler | -v | --verbose | -restrict) ;;
    -c | -dc | -dlink | --lib | -shared | --shared | -ptx | --ptx | -cubin | --cubin | -fatbin | -E | -M*)
      refuse "flag '$1' makes no program; expected all files of one; name them, and leave the flag out"
      ;;
    *) words=0 ;;
  esac
}
