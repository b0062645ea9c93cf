# SPDX-License-Identifier: Apache-2.0
# Completion of the command `ferry` for bash: subcommands, their flags, setting names behind --set,
# and values of flags that take one of a few words.

_ferry_settings()
{
    # The settings of the installed command; nothing if it cannot tell.
    "${COMP_WORDS[0]}" config --json 2>/dev/null | sed -n 's/^{"name":"\([^"]*\)".*/\1=/p'
}

_ferry_flags()
{
    local common="--config --set --json --help --usage --version"
    case $1 in
        serve) echo "$common --listen --memory --load --permission --name" ;;
        cp) echo "$common --verify --length --chunk --window --transport --quiet" ;;
        bench)
            echo "--config --set --json --help --version --target --op --block --batch --threads" \
                "--duration --warmup --transport --check --seed --buffer"
            ;;
        config) echo "$common --changed" ;;
        segment) echo "$common --host --size --sparse --extend --hidden --memory --quick --purge" ;;
        info | doctor) echo "$common" ;;
        *) echo "--help --usage --version" ;;
    esac
}

_ferry()
{
    local commands="serve bench cp segment info doctor config"
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} words

    COMPREPLY=()
    # With "=" among the word breaks, NAME=VALUE arrives as three words.
    if [[ $previous == "=" ]]; then
        return
    fi
    case $previous in
        -c | --config | --load)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
            ;;
        --set)
            compopt -o nospace 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -W "$(_ferry_settings)" -- "$current")
            return
            ;;
        --permission) words="read-only read-write" ;;
        --op) words="read write mix write_seed read_verify" ;;
        --transport) words="hp_tcp" ;;
        --listen | --memory | --name | --length | --chunk | --window | --target | --block | --batch | \
            --threads | --duration | --warmup | --seed | --buffer | --host | --size)
            return
            ;;
    esac
    if [[ -z $words ]]; then
        if ((COMP_CWORD == 1)); then
            words="$commands $(_ferry_flags)"
        elif [[ $current == -* ]]; then
            words=$(_ferry_flags "$command")
        elif [[ $command == segment ]] && ((COMP_CWORD == 2)); then
            words="show list create register map unmap verify resize rm"
        elif [[ $command == segment ]] && { ((COMP_CWORD > 3)) || [[ ${COMP_WORDS[2]} == create ]]; }; then
            # Behind the name; create has only files.
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
        elif [[ $command == cp ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
        elif [[ $command == config ]]; then
            words=$(_ferry_settings | tr -d '=')
        fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _ferry ferry
